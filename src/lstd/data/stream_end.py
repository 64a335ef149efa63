"""The last row of a stream, which decides whether the next row continues its episode."""

from __future__ import annotations

from typing import Any, NamedTuple

from lstd.data.arguments import shown_id
from lstd.data.ids import same_id
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError


class StreamEnd(NamedTuple):
    """The last row of a stream."""

    episode: Any  # its id; None without ids
    terminated: bool
    missing: bool  # whether its reward is NaN

    @classmethod
    def of(cls, rows: Rows) -> StreamEnd:
        """Return the end of rows, at least one."""
        return cls(rows.last_episode, bool(rows.terminated[-1]), not rows.known[-1])

    def goes_on_with(self, episode: Any) -> bool:
        """Return whether a next row, of this id, continues the last episode.

        Raises
        ------
        InvalidInputError
            When the id is that of an episode that terminated; when ids were given for only some rows.
        """
        same = same_id(self.episode, episode)
        if self.terminated:
            if same and episode is not None:
                raise InvalidInputError(
                    "`terminated` may be True on the last row of an episode only; it was on the last row of the chunk "
                    f"before, and this one begins with the same `episode`, {shown_id(episode)}. Give the rows that "
                    "follow another id."
                )
            return False
        if (self.episode is None) != (episode is None):
            raise InvalidInputError(
                "`episode` must be given for all chunks of a stream or for none, because a chunk may continue the "
                "episode of the previous chunk."
            )
        return same

    def check_continued(self) -> None:
        """Raise InvalidInputError if the episode, which continues, lacks the reward of this row."""
        if self.missing:
            raise InvalidInputError(
                "`y` must be finite on a row whose episode continues in the next chunk; the last row of the chunk "
                "before has NaN. Pass that reward, or give the next chunk another `episode` id if the episode was "
                "truncated."
            )
