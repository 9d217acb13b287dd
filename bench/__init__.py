"""What castore costs, against the same work written out bare, in the same run.

A figure in microseconds says as much about the machine as about castore, so every
limit here is a ratio: castore's time over that of a *floor*, a few lines that make
the necessary calls and nothing else. Both sides take turns, round by round, on the
same data, and the median of the rounds' ratios counts. Run: `python -m bench`.
"""
