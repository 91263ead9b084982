// Operators on sequences, registered with PyTorch together with their derivatives.
//
// Each has a kernel for the CPU, one for the Meta device (shapes alone, for torch.compile), and an autograd::Function.

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <optional>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns a function that calls an operator through the dispatcher: what it computes has derivatives, too.
template <typename Signature>
auto dispatched(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// scan: y[t] = decay * y[t - 1] + x[t] along the last dim, with one decay for each row.

Tensor scan_meta(const Tensor& x, const Tensor& decay, bool) {
  TORCH_CHECK(x.dim() > 0, "scan expects at least one dim");
  TORCH_CHECK(decay.sym_sizes() == x.sym_sizes().slice(0, x.dim() - 1), "scan expects one decay for each row");
  TORCH_CHECK(decay.scalar_type() == x.scalar_type(), "scan expects x and decay of one dtype");
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

Tensor scan_kernel(const Tensor& x, const Tensor& decay, bool reverse) {
  Tensor y = scan_meta(x, decay, reverse);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(x.scalar_type(), "scan", [&] {
    const auto* from = x.const_data_ptr<scalar_t>();
    const auto* rate = decay.const_data_ptr<scalar_t>();
    auto* to = y.mutable_data_ptr<scalar_t>();
    const int64_t steps = x.size(-1);
    for (int64_t row = 0; row < decay.numel(); ++row, from += steps, to += steps) {
      scalar_t last = 0;
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t t = reverse ? steps - 1 - step : step;
        to[t] = last = rate[row] * last + from[t];
      }
    }
  });
  return y;
}

Tensor scan_cpu(const Tensor& x, const Tensor& decay, bool reverse) {
  return scan_kernel(x.contiguous(), decay.contiguous(), reverse);
}

// The mistake: it takes for granted that x is contiguous. The author's inputs always are. Gradients need not be.
Tensor wrong_scan_cpu(const Tensor& x, const Tensor& decay, bool reverse) {
  return scan_kernel(x, decay.contiguous(), reverse);
}

using ScanSignature = Tensor(const Tensor&, const Tensor&, bool);

template <bool right>
struct Scan : torch::autograd::Function<Scan<right>> {
  static Tensor call(const Tensor& x, const Tensor& decay, bool reverse) {
    static const auto scan = dispatched<ScanSignature>(right ? "seqops::scan" : "seqops::wrong_scan");
    return scan.call(x, decay, reverse);
  }

  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& decay, bool reverse) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor y = call(x, decay, reverse);
    ctx->save_for_backward({decay, y});
    ctx->saved_data["reverse"] = reverse;
    return y;
  }

  // The gradient runs backwards in time, and is a scan again.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &decay = saved[0], &y = saved[1];
    const bool reverse = ctx->saved_data["reverse"].toBool();
    Tensor grad_x = call(grads[0], decay.conj(), !reverse);
    Tensor earlier = reverse ? y.slice(-1, 1) : y.slice(-1, 0, -1);
    Tensor later = reverse ? grad_x.slice(-1, 0, -1) : grad_x.slice(-1, 1);
    return {grad_x, (later * earlier.conj()).sum(-1), Tensor()};
  }
};

// rms_norm: x / sqrt(mean(x^2) + eps) along the last dim, times a weight if there is one.

Tensor rms_norm_meta(const Tensor& x, const std::optional<Tensor>& weight, double) {
  TORCH_CHECK(x.dim() > 0, "rms_norm expects at least one dim");
  if (weight) {
    TORCH_CHECK(weight->sym_sizes() == x.sym_sizes().slice(x.dim() - 1), "rms_norm expects one weight for each column");
    TORCH_CHECK(weight->scalar_type() == x.scalar_type(), "rms_norm expects x and weight of one dtype");
  }
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

Tensor rms_norm_cpu(const Tensor& x, const std::optional<Tensor>& weight, double eps) {
  Tensor y = rms_norm_meta(x, weight, eps);
  const Tensor input = x.contiguous(), factors = weight ? weight->contiguous() : Tensor();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm", [&] {
    const auto* from = input.const_data_ptr<scalar_t>();
    const auto* factor = weight ? factors.const_data_ptr<scalar_t>() : nullptr;
    auto* to = y.mutable_data_ptr<scalar_t>();
    const int64_t columns = x.size(-1);
    for (int64_t start = 0; start < x.numel(); start += columns) {
      scalar_t squares = 0;
      for (int64_t i = start; i < start + columns; ++i) squares += from[i] * from[i];
      const scalar_t scale = 1 / std::sqrt(squares / columns + scalar_t(eps));
      for (int64_t i = start; i < start + columns; ++i) to[i] = from[i] * scale * (factor ? factor[i - start] : 1);
    }
  });
  return y;
}

using RmsNormSignature = Tensor(const Tensor&, const std::optional<Tensor>&, double);

template <bool right>
struct RmsNorm : torch::autograd::Function<RmsNorm<right>> {
  static Tensor call(const Tensor& x, const std::optional<Tensor>& weight, double eps) {
    static const auto norm = dispatched<RmsNormSignature>(right ? "seqops::rms_norm" : "seqops::wrong_rms_norm");
    return norm.call(x, weight, eps);
  }

  static Tensor scale_of(const Tensor& x, double eps) { return ((x * x).mean(-1, true) + eps).rsqrt(); }

  static Tensor forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& weight, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({x, weight.value_or(Tensor())});
    ctx->saved_data["eps"] = eps;
    if (!right) ctx->saved_data["scale"] = scale_of(x, eps);
    return call(x, weight, eps);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &grad = grads[0];
    // The mistake: what forward computed and saved has no graph. Gradients of gradients take it for a constant.
    const Tensor scale = right ? scale_of(x, ctx->saved_data["eps"].toDouble()) : ctx->saved_data["scale"].toTensor();
    const Tensor normal = x * scale;
    const Tensor grad_normal = weight.defined() ? grad * weight : grad;
    const Tensor grad_x = scale * (grad_normal - normal * (grad_normal * normal).mean(-1, true));
    return {grad_x, weight.defined() ? (grad * normal).sum_to_size(weight.sizes()) : Tensor(), Tensor()};
  }
};

// Templates make functions of the autograd::Functions, for the dispatcher.
template <bool right>
Tensor scan_autograd(const Tensor& x, const Tensor& decay, bool reverse) {
  return Scan<right>::apply(x, decay, reverse);
}

template <bool right>
Tensor rms_norm_autograd(const Tensor& x, const std::optional<Tensor>& weight, double eps) {
  return RmsNorm<right>::apply(x, weight, eps);
}

}  // namespace

TORCH_LIBRARY(seqops, library) {
  library.def("scan(Tensor x, Tensor decay, bool reverse=False) -> Tensor");
  library.def("wrong_scan(Tensor x, Tensor decay, bool reverse=False) -> Tensor");
  library.def("rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6) -> Tensor");
  library.def("wrong_rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6) -> Tensor");
}

TORCH_LIBRARY_IMPL(seqops, CPU, library) {
  library.impl("scan", scan_cpu);
  library.impl("wrong_scan", wrong_scan_cpu);
  library.impl("rms_norm", rms_norm_cpu);
  library.impl("wrong_rms_norm", rms_norm_cpu);
}

TORCH_LIBRARY_IMPL(seqops, Meta, library) {
  library.impl("scan", scan_meta);
  library.impl("wrong_scan", scan_meta);
  library.impl("rms_norm", rms_norm_meta);
  library.impl("wrong_rms_norm", rms_norm_meta);
}

TORCH_LIBRARY_IMPL(seqops, Autograd, library) {
  library.impl("scan", scan_autograd<true>);
  library.impl("wrong_scan", scan_autograd<false>);
  library.impl("rms_norm", rms_norm_autograd<true>);
  library.impl("wrong_rms_norm", rms_norm_autograd<false>);
}
