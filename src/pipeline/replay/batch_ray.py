"""What `batch` and `impact_run` do, as a stage of a Ray dataset. Spec: docs/spec/batch.md.

For those whom one machine no longer serves; needs the extra `[ray]`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.decisions.context import Context
from pipeline.decisions.errors import ReplayError, needs
from pipeline.replay.batch import COLUMN, Holds, Judging, as_lines, as_of, table, table_of
from pipeline.replay.impact import Change, Compared
from pipeline.replay.replay import Recipe, chunks
from pipeline.run.assembly import Policies, load_policies

if TYPE_CHECKING:
    import pyarrow
    from ray.data import Dataset

ROWS: Final = 500  # of a batch: enough that handing it over is nothing beside judging it


def judged(
    dataset: Dataset,
    policies: Policies = None,
    *,
    profiles: Path | None = None,
    holds: Holds = "entry",
    context: Context | None = None,
    moment: datetime | None = None,
    column: str = COLUMN,
    jobs: int | None = None,
) -> Dataset:
    """A row of `batch.Judged` for each row of the dataset [BAT-4]; arguments as for `batch.judge`.

    Raises:
        PolicyError: the set cannot be used. MissingExtraError: Ray is not installed.
    """
    recipe = partial(Judging, load_policies(policies), profiles, holds, context, as_of(moment))
    return _staged(dataset, partial(_Stage, recipe, table, column), jobs)


def _staged(dataset: Dataset, stage: partial[_Stage], jobs: int | None) -> Dataset:
    """`dataset` through a stage that each of `jobs` workers makes once; by default one for each CPU of the cluster."""
    ray = _ray()
    count = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
    workers = ray.data.ActorPoolStrategy(min_size=1, max_size=count)
    through: Dataset = dataset.map_batches(
        stage.func, fn_constructor_args=stage.args, batch_format="pyarrow", batch_size=ROWS, compute=workers, num_cpus=1
    )
    return through


class _Stage:
    """What Ray makes in a worker, and calls: the lines in a column of a batch, as a table of what came of them."""

    def __init__(self, recipe: Recipe[Any], as_table: Callable[[Iterable[Any]], pyarrow.Table], column: str) -> None:
        self._work, self._as_table, self._column = recipe(), as_table, column

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        return self._as_table(self._work(list(as_lines(batch[self._column]))))


def spread_on_ray(
    found: Iterable[bytes], recipe: Recipe[Compared], *, jobs: int | None = None
) -> Generator[list[Compared], None, None]:
    """As `replay.spread`, in the processes of the Ray cluster that is there, or of a local one [BAT-5].

    The lines are read here and handed over: the file need not be where the cluster is.

    Raises:
        ReplayError: the work failed there (`replay.worker-lost`). ConfigError: Ray is not installed.
    """
    ray = _ray()
    recipe()  # faults of the sets are reported here, once
    import pyarrow

    tables = [pyarrow.table({COLUMN: pyarrow.array(chunk, pyarrow.binary())}) for chunk in chunks(found, ROWS)]
    if not tables:
        return
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    stage = partial(_Stage, recipe, partial(table_of, Compared), COLUMN)
    rows = _staged(ray.data.from_arrow(tables), stage, jobs)
    try:
        for batch in rows.iter_batches(batch_size=ROWS, batch_format="pyarrow"):
            yield [_compared(row) for row in batch.to_pylist()]
    except ray.exceptions.RayError:
        hint = "look at the logs of the cluster"
        raise ReplayError("the work failed on Ray", hint=hint, code="replay.worker-lost") from None


def _compared(row: dict[str, Any]) -> Compared:
    plain: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in row.items()}
    return Compared(**{**plain, "change": Change(plain["change"])})


def _ray() -> Any:
    """Ray, with a cluster: the one that is there, or a local one, which tells nobody that it is used."""
    with needs("ray"):
        import ray.data
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise it tells its makers that it is used
        logging.getLogger("ray").setLevel(logging.ERROR)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.init(include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
    return ray
