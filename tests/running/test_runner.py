"""Running one case: whatever goes wrong becomes an outcome."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from opcheck.checks.verdict import Verdict, fails
from opcheck.running.process_state import open_contexts, read, write
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.settings import Settings

NAME = "operators.right.square::backward[cpu-float64]"


@pytest.fixture(scope="module")
def session():
    return RunSession(Settings(modules=("torch", "operators")))


SPEC = """
[[operator]]
name    = "{}"
samples = [{{ args = [{{ shape = [2] }}] }}]
"""


@pytest.fixture
def checked_by(case_of, session):
    """Return a function that runs a case whose check is the given function."""

    def run_with(check, case=None):
        case = case or case_of(text=SPEC.format("operators.right.square"))
        globals()["_check"] = check
        return run(replace(case, kind=replace(case.kind, implementation=f"{__name__}:_check")), session)

    return run_with


def test_a_case_that_holds_has_passed_and_took_some_time(case_of, session):
    outcome = run(case_of(text=SPEC.format("operators.right.square")), session)
    assert (outcome.id, outcome.outcome, outcome.message) == (NAME, "passed", "")
    assert 0 < outcome.seconds < 60


def test_a_case_that_fails_says_how_to_run_it_again(case_of, session, tmp_path):
    outcome = run(case_of(text=SPEC.format("operators.faulty.wrong_sign")), session)
    assert outcome.outcome == "failed"
    last = outcome.message.splitlines()[-1]
    assert (
        last == f"run just this: opcheck run '{tmp_path}/spec.toml::operators.faulty.wrong_sign::backward[cpu-float64]'"
    )


def test_an_operator_that_refuses_its_sample_is_no_known_wrong_gradient(case_of, session):
    known = '[[operator.expect]]\nwhen = { check = "backward" }\noutcome = "fail"\nreason = "gradient is 2/3"\n'
    spec = SPEC.format("operators.right.scale").replace("{ shape = [2] }", "{ shape = [2] }, 1.0, 2.0")
    outcome = run(case_of(text=spec + known), session)
    assert outcome.outcome == "error"
    assert outcome.reason.startswith("the operator refuses the sample: TypeError: scale() takes")
    assert run(case_of(text=spec + known.replace("fail", "error")), session).outcome == "xfailed"


def test_an_operator_that_does_not_exist_is_an_error_with_its_place(case_of, session, tmp_path):
    outcome = run(case_of(text=SPEC.format("operators.right.sqare")), session)
    line = (
        f'{tmp_path}/spec.toml:3:11: "operators.right.sqare": operators.right has no attribute "sqare"; '
        'did you mean "operators.right.square"?'
    )
    assert (outcome.outcome, outcome.reason) == ("error", line)
    assert outcome.message.splitlines()[0] == f"operators.right.sqare::backward[cpu-float64]: {line}"


def test_a_check_that_breaks_is_told_apart_from_an_operator_that_does(checked_by):
    def check(context):
        raise ZeroDivisionError("oh")

    outcome = checked_by(check)
    assert (outcome.outcome, outcome.reason) == ("error", "the check itself broke: ZeroDivisionError: oh")
    assert outcome.message.splitlines()[-3:-1] == ["this is a defect of the check", ""]


def test_a_check_that_yields_something_else_than_a_verdict_is_told_so(checked_by):
    outcome = checked_by(lambda context: iter([Verdict(True), True]))
    why = "the check itself broke: TypeError: it yielded bool, expected a Verdict"
    assert (outcome.outcome, outcome.reason) == ("error", why)


@pytest.mark.parametrize("error", [MemoryError("much"), torch.OutOfMemoryError("much")])
def test_exhausted_memory_is_an_error(checked_by, error):
    def check(context):
        raise error

    outcome = checked_by(check)
    assert outcome.outcome == "error"
    assert outcome.reason.startswith("out of memory: ")


def test_an_operator_that_exits_does_not_take_the_run_with_it(checked_by):
    def check(context):
        raise SystemExit("bye")

    outcome = checked_by(check)
    assert (outcome.outcome, outcome.reason) == ("error", "the operator ends the process: SystemExit: bye")


def test_an_interrupt_from_outside_passes_through(checked_by):
    def check(context):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        checked_by(check)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, pytest.skip.Exception, pytest.xfail.Exception])
def test_an_operator_that_raises_what_is_not_its_to_raise_is_an_error(checked_by, error):
    def check(context):
        raise error("mine")

    outcome = checked_by(check)
    assert (outcome.outcome, outcome.reason) == ("error", f"the operator ends the process: {error.__name__}: mine")


def test_a_time_out_by_pytest_is_told_in_the_words_of_a_run(checked_by):
    def check(context):
        pytest.fail("Timeout (>1.0s)\n from pytest-timeout.")

    assert checked_by(check).reason == "time-out: it takes longer than 1 s"


KNOWN = '[[operator.expect]]\nwhen = { check = "backward" }\noutcome = "fail"\nreason = "as an example"\n'


@pytest.mark.parametrize(("name", "known"), [("right.square", ""), ("faulty.both_orders_wrong", KNOWN)])
def test_an_interrupt_that_is_swallowed_is_an_error_whatever_was_expected(case_of, session, name, known):
    outcome = run(case_of(text=SPEC.format(f"operators.{name}") + known), session, limit=1e-9)
    assert (outcome.outcome, outcome.reason.split(":")[0]) == ("error", "time-out")


def test_a_failure_that_an_operator_claims_in_the_name_of_pytest_is_no_time_out(checked_by):
    def check(context):
        pytest.fail("mine")

    assert checked_by(check).reason == "the operator ends the process: Failed: mine"


def test_where_interrupts_are_ignored_an_operator_that_raises_one_is_an_error(checked_by):
    def check(context):
        raise KeyboardInterrupt("mine")

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert checked_by(check).reason == "the operator ends the process: KeyboardInterrupt: mine"
    finally:
        signal.signal(signal.SIGINT, before)


def test_where_a_project_handles_interrupts_they_are_left_to_it(checked_by):
    def check(context):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with pytest.raises(KeyboardInterrupt):
            checked_by(check)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_case_runs_in_any_thread(checked_by):
    found = []
    thread = threading.Thread(target=lambda: found.append(checked_by(lambda context: [Verdict(True)])))
    thread.start()
    thread.join()
    assert [outcome.outcome for outcome in found] == ["passed"]


def test_the_exception_behind_a_failure_is_kept_for_debuggers(checked_by, session):
    cause = ValueError("no")
    checked_by(lambda context: [Verdict(True), replace(fails("wrong"), cause=cause)])
    assert session.cause is cause
    checked_by(lambda context: [Verdict(True)])
    assert session.cause is None


def test_a_target_that_does_not_exist_is_told_at_its_place(case_of, session, tmp_path):
    text = SPEC.format("mine.op").replace("samples", 'target  = "operators.right.sqare"\nsamples')
    assert run(case_of(text=text), session).reason.startswith(f"{tmp_path}/spec.toml:4:11: ")


def test_a_sample_that_cannot_be_made_in_a_dtype_is_not_blamed_on_the_operator(verdict_of):
    samples = 'samples = [{ args = [{ shape = [600], structure = "distinct" }] }]'
    outcome = verdict_of("operators.right.square", "low_precision_grad", "bfloat16", samples=samples)
    assert outcome.outcome == "error"
    assert outcome.reason.startswith("the sample cannot be made: ValueError: 600 numbers of torch.bfloat16 cannot be ")
    assert "write dtypes" not in outcome.message


def test_an_argument_that_does_not_exist_is_told_at_its_place(case_of, session, tmp_path):
    text = SPEC.format("operators.right.square") + 'supports.backward = ["y"]\n'
    outcome = run(case_of(text=text), session)
    expected = f'{tmp_path}/spec.toml:5:22: unknown argument "y"; expected one of x, 0'
    assert (outcome.outcome, outcome.reason) == ("error", expected)


@pytest.mark.parametrize(("name", "outcome"), [("weight", "passed"), ("bias", "error")])
def test_the_parameters_of_a_module_are_arguments(case_of, session, name, outcome):
    text = f"""
[[operator]]
name     = "torch.nn.Linear"
module   = {{ args = [2, 2], kwargs = {{ bias = false }} }}
samples  = [{{ args = [{{ shape = [2] }}] }}]
supports = {{ backward = ["input", "{name}"] }}
"""
    assert run(case_of(text=text), session).outcome == outcome


def test_the_generator_of_random_numbers_is_seeded_by_the_case_and_put_back(checked_by, case_of):
    drawn = []

    def check(context):
        drawn.append(torch.rand(1).item())
        return []

    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    checked_by(check)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    checked_by(check)
    assert drawn[0] == drawn[1]
    case = case_of(text=SPEC.format("operators.right.square"))
    checked_by(check, replace(case, base_seed=1))
    checked_by(check, case_of(text=SPEC.format("operators.right.square"), check="vmap"))
    assert len(set(drawn)) == 3


def warns(context):
    warnings.warn("mind this", stacklevel=1)
    return [Verdict(True)]


def test_warnings_are_left_to_the_project(checked_by):
    with pytest.warns(UserWarning, match="mind this"):
        assert checked_by(warns).outcome == "passed"


def test_a_warning_is_an_error_where_the_project_says_so(checked_by):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked_by(warns).outcome == "error"


def test_what_torch_warns_of_once_a_process_is_an_error_of_each_who_does_it(checked_by):
    def casts(context):
        torch.ones(1, dtype=torch.complex64).to(torch.float32)
        return [Verdict(True)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [checked_by(casts).outcome for _ in range(2)] == ["error", "error"]
    assert not torch.is_warn_always_enabled()


def test_that_a_batch_of_opcheck_is_slow_is_no_warning_for_the_project(checked_by):
    def slow(context):
        warnings.warn("There is a performance drop because we have not yet implemented the batching rule", stacklevel=1)
        return [Verdict(True)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked_by(slow).outcome == "passed"


def test_a_check_without_a_verdict_is_an_error(checked_by):
    outcome = checked_by(lambda context: [])
    assert (outcome.outcome, outcome.reason) == ("error", "backward gave no verdict: nothing was tested")


class TestSkipped:
    def test_a_case_of_an_absent_device_is_skipped_with_the_reason(self, case_of, session, monkeypatch):
        monkeypatch.setattr("torch.version.cuda", None)
        monkeypatch.setattr("torch.version.hip", None)
        outcome = run(case_of(text=SPEC.format("torch.sin"), device="cuda"), session)
        assert outcome.outcome == "skipped"
        assert outcome.reason == "the device cuda is not present: this build of torch has no CUDA"

    def test_a_case_that_is_expected_to_be_skipped_does_not_run(self, case_of, checked_by):
        def check(context):
            pytest.fail("it runs")

        outcome = checked_by(check, case_of((None, "skip", "takes an hour")))
        assert (outcome.outcome, outcome.reason) == ("skipped", "takes an hour")

    def test_a_case_all_of_whose_samples_are_skipped_says_why(self, case_of, checked_by):
        case = case_of(("a", "skip", "slow"), ("b", "skip", "slow"), ("g", "skip", "huge"))
        outcome = checked_by(lambda context: [], case)
        assert (outcome.outcome, outcome.reason) == ("skipped", "slow; huge")

    def test_a_case_without_samples_for_its_dtype_says_so(self, case_of, checked_by):
        text = SPEC.format("torch.sin").replace("] }] }]", '] }], dtypes = ["float32"] }]')
        outcome = checked_by(lambda context: [], case_of(text=text))
        assert (outcome.outcome, outcome.reason) == ("skipped", "no sample is meant for float64")


class TestSideEffects:
    """What an operator leaves changed in the process is put back, and is a failure of that operator alone."""

    @pytest.mark.parametrize(
        ("leave", "told"),
        [
            (lambda: torch.set_grad_enabled(False), "grad mode False instead of True"),
            (lambda: KEPT.append(entered(torch.inference_mode())), "inference mode True instead of False"),
            (lambda: torch.set_default_dtype(torch.float64), "default dtype torch.float64 instead of torch.float32"),
            (lambda: torch.set_default_device("meta"), "default device meta instead of cpu"),
            (lambda: torch.device("meta").__enter__(), "default device meta instead of cpu"),
            (lambda: torch.set_num_threads(2), "threads 2 instead of 1"),
            (lambda: torch.use_deterministic_algorithms(True), "deterministic debug mode 2 instead of 0"),
            (
                lambda: torch.use_deterministic_algorithms(True, warn_only=True),
                "deterministic debug mode 1 instead of 0",
            ),
            (lambda: torch.autograd.set_detect_anomaly(True), "anomaly mode True instead of False"),
            (lambda: torch.autograd.set_detect_anomaly(False, check_nan=False), "anomaly checks nan False"),
            (lambda: torch.set_float32_matmul_precision("medium"), "matmul precision medium instead of highest"),
            (lambda: torch.backends.mkldnn.set_flags(False), "oneDNN enabled False instead of True"),
            (lambda: torch.set_autocast_dtype("cpu", torch.float16), "autocast dtype on cpu torch.float16 instead of"),
            (lambda: torch.sparse.check_sparse_tensor_invariants.enable(), "checks of sparse tensors True instead of"),
            (
                lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
                "filling of uninitialized memory False instead of True",
            ),
            (lambda: torch.set_autocast_enabled("cpu", True), "autocast on cpu True instead of False"),
            (lambda: setattr(torch.backends.cudnn, "benchmark", True), "benchmark in cuDNN True instead of False"),
            (lambda: torch.backends.cuda.enable_flash_sdp(False), "flash attention False instead of True"),
            (lambda: torch.set_flush_denormal(True), "flush denormal True instead of False"),
            (lambda: sys.setrecursionlimit(5000), "recursion limit 5000 instead of 2000"),
            (lambda: entered(saved_tensors_hooks(lambda x: x, lambda x: x)), "saved-tensor hooks on"),
            (lambda: entered(entered_twice()), "saved-tensor hooks on"),
            (lambda: torch.autograd.forward_ad.enter_dual_level(), "a dual level open"),
            (lambda: sys.stdout.close(), "standard output closed"),
            (lambda: entered(sys.stderr).__exit__(None, None, None), "standard error closed"),
        ],
    )
    def test_what_is_left_changed_is_told_and_put_back(self, checked_by, leave, told):
        def check(context):
            leave()
            return [Verdict(True)]

        before = read()
        outcome = checked_by(check)
        assert outcome.outcome == "failed"
        assert f"side effect: the operator leaves {told}" in outcome.message
        assert read() == before
        assert open_contexts() == []
        assert checked_by(lambda context: [Verdict(True)]).outcome == "passed"

    @pytest.mark.parametrize(
        "place",
        [
            "",
            "cuda.matmul",
            "cudnn",
            pytest.param("mkldnn", marks=pytest.mark.nightly),
            "mkldnn.matmul",
            pytest.param("mkldnn.conv", marks=pytest.mark.nightly),
        ],
    )
    @pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="torch 2.9 has these settings first")
    def test_the_precision_of_a_backend_is_put_back_even_where_torch_cannot_name_that_of_all(
        self, checked_by, session, monkeypatch, place
    ):
        backend = torch.backends
        for name in filter(None, place.split(".")):
            backend = getattr(backend, name)
        before = read()

        def check(context):
            backend.fp32_precision = "tf32"
            return [Verdict(True)]

        assert "the operator leaves float32 precision" in checked_by(check).message
        assert read() == before
        backend.fp32_precision = "tf32"  # by a conftest.py: every case begins with it
        try:
            begun = read()
            monkeypatch.setattr(session, "start", begun)
            assert checked_by(lambda context: [Verdict(True)]).outcome == "passed"
            assert (
                "the operator leaves"
                in checked_by(lambda context: torch.set_float32_matmul_precision("medium") or [Verdict(True)]).message
            )
            assert checked_by(lambda context: [Verdict(True)]).outcome == "passed"
            assert read() == begun
        finally:
            write(before)
        assert read() == before

    def test_a_case_starts_from_the_same_state_whatever_ran_before(self, checked_by):
        seen = []

        def check(context):
            seen.append((torch.is_grad_enabled(), torch.is_anomaly_enabled(), torch.get_num_threads()))
            return [Verdict(True)]

        with torch.no_grad(), torch.autograd.detect_anomaly(check_nan=False):
            assert checked_by(check).outcome == "passed"
            assert not torch.is_grad_enabled()
            assert torch.is_anomaly_enabled()
        assert seen == [(True, False, 1)]

    def test_what_a_case_without_verdicts_leaves_is_told_as_well(self, checked_by):
        def check(context):
            torch.set_grad_enabled(False)
            raise MemoryError("much")

        outcome = checked_by(check)
        assert (outcome.outcome, outcome.reason) == ("error", "out of memory: MemoryError: much")
        assert "the operator leaves grad mode False instead of True" in outcome.message
        assert torch.is_grad_enabled()

    def test_a_wrong_second_derivative_fails_after_an_operator_that_turns_gradients_off(self, case_of, session):
        spec = """
[[operator]]
name    = "operators.{}"
dtypes  = {{ forward = ["float64"] }}
samples = [{{ args = [{{ shape = [2] }}] }}]
"""
        careless = run(case_of(text=spec.format("spoiling.no_gradients_from_now_on"), check="vmap"), session)
        assert "the operator leaves grad mode False" in careless.message
        wrong = run(case_of(text=spec.format("faulty.second_order_wrong"), check="rev_over_rev"), session)
        assert wrong.outcome == "failed"

    def test_contexts_that_somebody_else_holds_open_let_nothing_pass(self, checked_by):
        with saved_tensors_hooks(lambda x: x, lambda x: x):
            outcome = checked_by(lambda context: [Verdict(True)])
        assert (outcome.outcome, outcome.reason) == (
            "error",
            "not run: earlier code in this process left saved-tensor hooks on; "
            "close such contexts before running opcheck",
        )  # fmt: skip
        with torch.autograd.forward_ad.dual_level():
            assert "left a dual level open" in checked_by(lambda context: [Verdict(True)]).reason

    def test_what_an_import_changes_is_put_back_and_told(self, tmp_path, monkeypatch, case_of):
        (tmp_path / "doubles.py").write_text(
            "import torch\ntorch.set_default_dtype(torch.float64)\n\ndef twice(x):\n    return 2 * x\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        case = case_of(text=SPEC.format("doubles.twice"), modules=("doubles",))
        session = RunSession(Settings(modules=("torch", "doubles")))
        assert session.prepare([case.operator]) == []
        assert torch.get_default_dtype() is torch.float32
        outcome = run(case, session)
        assert outcome.outcome == "failed"
        assert "leaves default dtype torch.float64 instead of torch.float32, by its import" in outcome.message


def entered(context):
    context.__enter__()
    return context


def entered_twice():
    entered(saved_tensors_hooks(lambda x: x, lambda x: x))
    return saved_tensors_hooks(lambda x: x, lambda x: x)


KEPT = []
"""Contexts that were left open: they would close with their last reference."""
