"""The live table of a running check."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from paperworks.core.runner import Job, Plan

__all__ = ["LiveProgress"]


class LiveProgress:
    """Show, on standard error, how far each system's trials are; without a terminal, one line when a system is done."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._left: dict[str, int] = {}

    def __enter__(self) -> LiveProgress:
        """Start to draw."""
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to draw and leave the last state on the screen."""
        self._bars.stop()

    def say(self, text: str) -> None:
        """Write a line."""
        self._console.print(text, highlight=False)

    def start(self, plans: Sequence[Plan]) -> None:
        """Begin with what is already measured."""
        for plan in plans:
            total = sum(map(len, plan.jobs.values()))
            self._left[plan.paper.slug] = len(plan.left)
            self._tasks[plan.paper.slug] = self._bars.add_task(
                plan.paper.slug, total=total, completed=total - len(plan.left)
            )

    def advance(self, plan: Plan, job: Job) -> None:
        """Count one more trial."""
        slug = plan.paper.slug
        self._bars.advance(self._tasks[slug])
        self._left[slug] -= 1
        if self._left[slug] == 0 and not self._console.is_terminal:
            self.say(f"{slug}: {sum(map(len, plan.jobs.values()))} trials done")
