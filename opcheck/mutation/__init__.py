"""What the samples of a spec would not notice: a gradient that is wrong under one condition only."""
