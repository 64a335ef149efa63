"""Fits to tables: one way from named columns to a model of either kind.

The first rows are read once: they are kept for a choice of settings, for doubts that sums do not show, and for a
report, while the same rows are summed.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from numpy.typing import NDArray

from lstd.data.doubts import warn_of_break
from lstd.data.follow import check_equal
from lstd.data.roles import Roles
from lstd.data.rows import Rows
from lstd.data.settings import Settings, StepsParameters
from lstd.data.table import Table
from lstd.distributed.chunk_sums import MEMORY, Part, called, choice_entries
from lstd.distributed.on_dask import Partitions, loaded_once
from lstd.distributed.runner import Runner, counted
from lstd.errors import InvalidInputError, MissingTerminationWarning, TerminationWarning, warn
from lstd.estimators.choose_settings import Choice, choose
from lstd.estimators.model import Model, model_of
from lstd.estimators.model_parts import Checks, Origin, Selection
from lstd.estimators.pair_search import OnProgress
from lstd.statistics.threads import available_cores, one_blas_thread
from lstd.tables.first_rows import FirstRows
from lstd.tables.reader import Chunk, RowReader, Tables, opened
from lstd.tables.sum_tables import Ends, SumTables, memory_suffices

if TYPE_CHECKING:
    from lstd.estimators.horizon_lstd import HorizonLSTD

_DOUBTED_ROWS = 5000  # the first, which are looked at for doubts that sums do not show
_LOG = logging.getLogger("lstd")


@dataclass(frozen=True)
class TableFit:
    """How tables are fitted; the arguments are the checked ones of :func:`lstd.fit_tables`.

    `on_progress` is called with a description of the work of a choice, the bytes done and the bytes in all.
    """

    roles: Roles
    settings: Settings
    runner: Runner = Runner()  # noqa: RUF009
    n_blocks: int | str = "auto"
    memory: int = MEMORY
    independent: bool = False
    chunk_rows: int | None = None
    on_progress: OnProgress | None = None

    def model(self, tables: Tables, sample: FirstRows | None = None) -> Model:
        """Fit a model of discounted rewards by the sums of each table; the first rows are added to a `sample`.

        `tables` are those of :func:`lstd.tables.reader.tables_of`.
        """
        assumed = self.roles.doubt_of_ends
        warn(assumed, MissingTerminationWarning)
        files = [_name_of(table) for table in _at_hand(tables)]
        sums, tables = self._sums(tables)
        selection: Selection | None = None
        checks: Checks | None = None
        doubted = FirstRows(choice_entries(self.memory) // 4, _DOUBTED_ROWS, independent=self.independent)
        first = [doubted]
        if sample is not None:
            first.append(sample)
        is_here = self._is_here(tables)
        is_collection = isinstance(tables, Partitions)
        if self.settings.choose:
            tables, (settings, selection, checks) = self._chosen(tables, sums, first)
            sums = replace(sums, settings=settings)
        if is_here:
            sums = replace(sums, first=tuple(first))
        part = self.runner.sum(sums, tables)
        self._check_ends(part, is_collection=is_collection)
        if not is_here and not len(doubted) and _can_be_read(tables):
            reader_of = replace(sums, chunk_rows=_DOUBTED_ROWS).reader
            _read_first(map(reader_of, enumerate(_at_hand(tables))), first)

        closed = part.ends.rows.times.doubt()
        warn(closed, TerminationWarning)
        if part.broken is not None:
            warn_of_break(part.broken, part.broken.place, columns=True)
        model = self._solved(part, sums.settings, files, selection=selection, checks=checks, assumed=bool(assumed))
        if closed:
            model = model.described(said=(closed,))
        rows = doubted.rows
        if rows is None:
            return model
        return model.with_doubts(rows)

    def horizon_model(
        self,
        tables: Tables,
        horizon: int,
        sample: FirstRows | None = None,
        **parameters: Unpack[StepsParameters],
    ) -> HorizonLSTD:
        """Fit a model of the next steps to tables that follow one another; the first rows are added to a `sample`."""
        from lstd.estimators.horizon_lstd import HorizonLSTD  # scikit-learn takes two seconds to import

        settings = self.settings
        model = HorizonLSTD(
            horizon,
            settings.gamma,
            settings.given_lmbda,
            settings.given_alpha,
            fit_intercept=settings.fit_intercept,
            n_blocks=self.n_blocks,
            **parameters,
        )
        reader = self._reader_of_steps(tables)
        warn(self.roles.doubt_of_ends, MissingTerminationWarning)
        model.fit_stream(_steps(reader, sample), self.roles.rewards)

        origin = _origin(
            [table.file for table in reader.tables],
            reader.roles,
            n_rows=model.model_.stream.layout.n_rows,
            n_transitions=model.n_transitions_,
            n_episodes=model.n_episodes_,
        )
        last_episode = reader.episodes.state.tail[-1].name  # of numbered ones, which `partial_fit` does not know
        stream = model.model_.stream.named(last_episode)
        model.model_ = model.model_.described(origin=origin, stream=stream)
        return model

    def _reader_of_steps(self, tables: Tables) -> RowReader:
        """Return the reader of tables that follow one another; raises InvalidInputError for what has no steps."""
        roles = self.roles
        given = {**roles.transitions, "next_features": roles.next_features}
        for name in ("next_features", "importance_ratio", "trace_coefficient"):
            if given.get(name):
                raise InvalidInputError(f"`{name}` must not be given with `horizon`. Leave it out, or use LSTD.")
        if isinstance(tables, Partitions):
            raise InvalidInputError(
                "`source` must not be a Dask collection with `horizon`, whose sums are made in this process. Give its "
                "files, or data frames, such as `source.compute()`."
            )
        return RowReader(
            [opened(place, table) for place, table in enumerate(tables)],
            roles,
            gamma=self.settings.gamma,
            chunk_rows=self.chunk_rows,
            memory=self.memory,
        )

    def _is_here(self, tables: Tables) -> bool:
        """Return whether threads of this process read the tables."""
        return self.runner.is_here and not isinstance(tables, Partitions)

    def _sums(self, tables: Tables) -> tuple[SumTables, Tables]:
        """Return what sums tables, and the tables; those that this process reads must have the columns."""
        roles = self.roles
        at_hand = _at_hand(tables)
        if at_hand and self._is_here(tables):
            reader = RowReader(at_hand, roles)
            tables = reader.tables
            roles = reader.roles
        tables, alone = counted(tables)
        settings = self.settings
        if roles.features is not None:
            settings = settings.named(roles.features)
        sums = SumTables(
            settings,
            self.n_blocks,
            self.memory,
            self.independent,
            roles,
            self.chunk_rows,
            alone=alone,
        )
        return sums, tables

    def _chosen(self, tables: Tables, sums: SumTables, others: Sequence[FirstRows]) -> tuple[Tables, Choice]:
        """Choose settings from the first rows; return the tables, of which some were begun, and the choice.

        Tables that this process sums go on behind the first rows. Workers cannot go on with a file that was begun here,
        so they read the first files again; what Dask loads stays there for its sums. Rows that are read here and summed
        elsewhere are added to the `others` too.
        """
        first = FirstRows(choice_entries(self.memory), ones=self.settings.fit_intercept, independent=self.independent)
        if self.runner.is_here and not isinstance(tables, Partitions):
            tables = _begun(tables, sums, first)
        elif _at_hand(tables):
            _read_first(map(sums.reader, enumerate(_at_hand(tables))), (first, *others))
        else:
            if not isinstance(tables, Partitions):
                tables = Partitions(list(tables))  # an iterator would be used up by the first rows
            tables, loaded = loaded_once(tables, self.runner.client, _table_of)
            _read_first(map(sums.reader, enumerate(loaded)), (first, *others))
        rows = first.rows
        if rows is None:
            raise InvalidInputError("`source` must hold at least one row to choose settings from; got none.")
        return tables, choose(rows, sums.settings.named(rows.names or ()), self.on_progress)

    def _check_ends(self, part: Part, *, is_collection: bool) -> None:
        """Check the first and the last rows of several tables, and say that rows without ids go on.

        Partitions of a collection of Dask are known to follow one another.
        """
        if self.independent or part.last == part.first:
            return
        part.ends.check()
        if self.roles.episode is None and not is_collection:
            _LOG.warning(
                "without a column of episodes, the first row of each table is taken as the successor of the last row "
                "of the table before, unless that ended its episode"
            )

    def _solved(
        self,
        part: Part,
        settings: Settings,
        files: Iterable[str],
        *,
        selection: Selection | None,
        checks: Checks | None,
        assumed: bool,
    ) -> Model:
        """Return the model of sums over all tables."""
        ends: Ends = part.ends
        features = ends.roles.features or ()
        total = ends.named(part.blocks.total)
        warned: frozenset[str] = frozenset()
        if assumed:
            warned = frozenset({"ends"})
        episodes = None  # ids that further data must not repeat
        if not self.independent:
            episodes = ends.rows.seen
        origin = _origin(
            files,
            ends.roles,
            n_rows=total.n_rows,
            n_transitions=total.n_transitions,
            n_episodes=total.n_episodes,
        )
        # The BLAS has one thread for any number of jobs: its threads divide sums, which changes the last bits.
        with one_blas_thread(), memory_suffices(len(features)):
            model = model_of(
                replace(part.blocks, total=total),
                settings.named(features),
                selection,
                self.n_blocks,
                checks=checks,
                warned=warned,
                rewards=ends.roles.rewards,
                threads=self.runner.n_jobs or available_cores(),
                origin=origin,
                episodes=episodes,
                limits=ends.limits,
            )
            _ = model.no_intervals  # so that the influence of blocks is computed here
        return model


def _begun(tables: Iterable[Any], sums: SumTables, first: FirstRows) -> Iterator[Any]:
    """Read the first rows, and return all tables; those that were begun go on with what was not read."""
    begun: list[RowReader] = []
    rest = iter(enumerate(tables))
    for task in rest:
        reader = sums.reader(task)
        begun.append(reader)
        if _hold(reader, first):
            break
        if sums.roles.features is None:
            sums = replace(sums, roles=replace(sums.roles, features=reader.features))
    return itertools.chain(begun, (table for _, table in rest))


def _table_of(chunk: Any) -> Any:
    """Return what a function without arguments returns, and any other chunk as it is; runs where Dask computes."""
    if callable(chunk):
        return called(chunk)
    return chunk


def _hold(reader: RowReader, first: FirstRows) -> bool:
    """Read the first rows of a reader, which holds them, and return whether there is no room for more."""
    held: list[Chunk] = []
    for chunk in reader.chunks():
        held.append(first.add(reader, chunk))
        if first.is_full:
            break
    reader.held = held
    return first.is_full


def _read_first(readers: Iterable[RowReader], first: Iterable[FirstRows]) -> None:
    """Read rows until all have their first rows."""
    for reader in readers:
        for chunk in reader.chunks():
            for one in first:
                one.add(reader, chunk)
            if all(one.is_full for one in first):
                return


def _at_hand(tables: Tables) -> list[str | Table]:
    """Return the tables that are at hand; none of functions, of an iterator and of what Dask holds."""
    if not isinstance(tables, list) or any(map(callable, tables)):
        return []
    return tables


def _name_of(table: str | Table) -> str:
    """Return the name of a table, that of its file if it has one."""
    if isinstance(table, Table):
        return table.file
    return table


def _can_be_read(tables: Tables) -> bool:
    """Return whether this process has tables that workers read, and not files of other machines."""
    at_hand = _at_hand(tables)
    if not at_hand:
        return False
    first = at_hand[0]
    return not isinstance(first, str) or Path(first).exists()


def _steps(reader: RowReader, sample: FirstRows | None) -> Iterator[tuple[Rows, NDArray[Any] | None]]:
    """Yield the rows of a reader with names of features, and their times, after a check that steps are equal."""
    from lstd.estimators.base import times_of

    clock = None
    for chunk in reader.chunks():
        if not len(chunk.rows):
            continue
        if chunk.times is not None:
            try:
                clock = check_equal(times_of(chunk.times, chunk.rows), chunk.rows, clock)
            except InvalidInputError as error:
                raise chunk.error(error) from error
        if sample is not None:
            sample.add(reader, chunk)
        yield chunk.rows.changed(names=reader.features), chunk.times


def _origin(files: Iterable[str], roles: Roles, *, n_rows: int, n_transitions: int, n_episodes: int) -> Origin:
    """Return what a model remembers of its tables, at the time of the fit, in UTC."""
    return Origin(
        files=tuple(files),
        rows=n_rows,
        transitions=n_transitions,
        episodes=n_episodes,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        next_features=roles.next_features,
        columns=roles.columns,
    )
