"""What comes out of a run: functions over the records of a run and over its summary.

``summarize`` turns records into one summary document (``summary.json``); everything else
here, and ``pytest_pinchbench.results.comparison``, reads that document.
"""
