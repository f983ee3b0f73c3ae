"""What the terminal says: one line a task, the categories, the mean; and why a task fell short."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_pinchbench.issues import printable
from pytest_pinchbench.reports import formats
from pytest_pinchbench.results import statistics as scores
from pytest_pinchbench.results.records import Record

WIDTH = 80


@dataclass(frozen=True)
class Outcome:
    """One attempt that was to run, and its record if there is one."""

    task_id: str
    attempt: int
    record: Record | None
    why_missing: str = "not run"

    @property
    def score(self) -> float | None:
        return self.record["metrics"]["score"] if self.record else None


def summary_lines(outcomes: Sequence[Outcome], *, seconds: float | None, where: str) -> list[str]:
    """The section at the end of a run, ready to print, at most 80 columns wide.

    ``seconds`` is the wall time, None where that means nothing (merged runs).
    """
    records = [outcome.record for outcome in outcomes if outcome.record is not None]
    lines = [*_task_table(outcomes), ""]
    if records:
        lines += [*_category_table(records), ""]
    lines += [*_totals(outcomes, records, seconds), f"Results     {where}"]
    return lines


def official_score(outcomes: Sequence[Outcome]) -> scores.Score | None:
    """The run's score; None when any attempt that was to run has no valid result."""
    if any(outcome.score is None for outcome in outcomes):
        return None
    return scores.overall([outcome.record for outcome in outcomes if outcome.record])


def _task_table(outcomes: Sequence[Outcome]) -> Iterable[str]:
    names = [_label(outcome, outcomes) for outcome in outcomes]
    width = max(len(name) for name in [*names, "task"])
    yield f"{'task':{width}}  {'score':>7}  {'passed':6}  {'time':>6}  {'tokens':>7}"
    for name, outcome in zip(names, outcomes, strict=True):
        record = outcome.record
        if record is None:
            # an id may take the whole line
            room = max(WIDTH - width - 11, 20)
            why = textwrap.shorten(printable(outcome.why_missing), room, placeholder=" ...")
            yield f"{name:{width}}  {'-':>7}  {why}"
            continue
        tokens = record["usage"]["total_tokens"]
        passed = {True: "yes", False: "no", None: "-"}[record["metrics"]["passed"]]
        yield (
            f"{name:{width}}  {_score_cell(outcome):>7}  {passed:6}  "
            f"{formats.seconds(record['execution_time']):>6}  {formats.count(tokens):>7}"
        ).rstrip()
        for issue in record["issues"]:
            yield from _no_commands(_issue_lines(issue))


def _label(outcome: Outcome, outcomes: Sequence[Outcome]) -> str:
    repeated = any(other.attempt > 1 for other in outcomes)
    return f"{outcome.task_id}[{outcome.attempt}]" if repeated else outcome.task_id


def _score_cell(outcome: Outcome) -> str:
    return "invalid" if outcome.score is None else formats.score(outcome.score)


def _issue_lines(issue: dict[str, str]) -> list[str]:
    text = f"{issue['severity']}: {' '.join(issue['message'].split())}"
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent="    ",
        subsequent_indent="      ",
        max_lines=4,
        break_on_hyphens=False,
    )


def _category_table(records: Sequence[Record]) -> Iterable[str]:
    rows = [("category", "tasks", "score", "passed")]
    for name, group in scores.by_category(records).items():
        score = scores.overall(group)
        tasks = len({record["task_id"] for record in group})
        valid = score.tasks if score else 0
        counted = str(tasks) if valid == tasks else f"{valid} of {tasks}"
        if score is None:
            rows.append((name, counted, "none", "-"))
        else:
            rows.append((name, counted, formats.score(score.mean), f"{score.pass_rate:.0%}"))
    names, counts = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, counted, mean, passed in rows:
        yield f"{name:{names}}  {counted:>{counts}}  {mean:>7}  {passed:>6}"


def _totals(
    outcomes: Sequence[Outcome], records: Sequence[Record], seconds: float | None
) -> Iterable[str]:
    score = official_score(outcomes)
    reference = scores.overall(records)
    tasks = len({outcome.task_id for outcome in outcomes})
    if score is not None:
        bounds = scores.mean_interval(records)
        spread = f"  (95 % interval {bounds[0]:.3f} to {bounds[1]:.3f})" if bounds else ""
        yield f"Mean score  {formats.score(score.mean)}{spread}"
        yield f"Pass rate   {score.pass_rate:.1%} of {formats.counted(tasks, 'task')}"
    else:
        missing = sum(outcome.record is None for outcome in outcomes)
        invalid = sum(outcome.score is None for outcome in outcomes) - missing
        counted = [f"{invalid} invalid"] * bool(invalid) + [f"{missing} not run"] * bool(missing)
        total = formats.counted(len(outcomes), "attempt")
        yield f"Mean score  none: {' and '.join(counted)} of {total}"
        if reference is not None:
            yield (
                f"            for reference only, over the {reference.tasks} valid of "
                f"{formats.counted(tasks, 'task')}: {formats.score(reference.mean)}, "
                f"{reference.pass_rate:.1%} passed"
            )
    if records:
        yield from _spent(records)
    if seconds is not None:
        yield f"Wall time   {formats.seconds(seconds)}"


def _spent(records: Sequence[Record]) -> Iterable[str]:
    usage = [record["usage"] for record in records]
    judges = [record["judge_usage"] for record in records if record["judge_usage"]]
    yield (
        f"Tokens      {_total(usage, 'input_tokens'):,} in, {_total(usage, 'output_tokens'):,} out"
        f" in {formats.counted(_total(usage, 'request_count'), 'request')}"
    )
    if judges:
        yield (
            f"Judge       {_total(judges, 'input_tokens'):,} in, "
            f"{_total(judges, 'output_tokens'):,} out"
        )
    yield f"Cost        {_cost([*usage, *judges])}"


def _total(usages: Sequence[dict[str, float]], name: str) -> int:
    return int(sum(usage[name] for usage in usages))


def _cost(usages: Sequence[dict[str, float | None]]) -> str:
    known = [usage["cost_usd"] for usage in usages if usage["cost_usd"] is not None]
    if not known:
        return "unknown: no price is known for this model"
    part = "" if len(known) == len(usages) else f", known for {len(known)} of {len(usages)} parts"
    return f"${sum(known):.4f}{part}"


def shortfall(record: Record, pass_mark: float) -> str:
    """Why an item failed: its score against the mark, and the criteria with what they gave."""
    scoring = record["meta"]["benchmark"]["scoring"]
    lines = [f"score {formats.score(record['metrics']['score'])}, pass mark {pass_mark:g}"]
    parts = scoring["parts"]
    if len(parts) > 1:
        width = max(map(len, parts))
        lines += [
            f"  {name:{width}}  {part['score']:.3f}  weight {part['weight']:g}"
            for name, part in parts.items()
        ]
    breakdown = {" ".join(name.split()): value for name, value in scoring["breakdown"].items()}
    width = max(map(len, breakdown), default=0)
    lines += [f"  {name:{width}}  {value:.3f}" for name, value in breakdown.items()]
    if scoring["notes"]:
        lines += textwrap.wrap(
            f"notes: {scoring['notes']}", WIDTH, initial_indent="  ", subsequent_indent="    "
        )
    for issue in record["issues"]:
        lines += f"  {issue['severity']}: {issue['message']}".splitlines()
    return "\n".join(_no_commands(lines))


def why_invalid(record: Record) -> str:
    """Why an item is an error: everything FATAL that happened in its last try."""
    fatal = [issue["message"] for issue in record["issues"] if issue["severity"] == "FATAL"]
    tries = len(record["retried"]) + 1
    after = f" after {tries} tries" if tries > 1 else ""
    lines = (f"invalid, no score{after}: " + "\n".join(fatal)).splitlines()
    return "\n".join(_no_commands(lines))


def _no_commands(lines: Iterable[str]) -> Iterable[str]:
    """Keep what a model or an endpoint said from being taken for a command of the CI that
    reads the log (GitHub acts on a line that begins with ``::`` or ``##[``).
    """
    for line in map(printable, lines):
        yield f"| {line}" if line.lstrip().startswith(("::", "##[")) else line
