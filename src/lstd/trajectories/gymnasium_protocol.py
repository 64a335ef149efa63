"""What `reset` and `step` of an environment return, checked against Gymnasium's API."""

from __future__ import annotations

from typing import Any

from lstd.errors import InvalidInputError

_OLD = "Wrap it for Gymnasium, for example with shimmy's GymV21CompatibilityV0."


def check_reset(result: Any) -> Any:
    """The observation that `env.reset` gave, or InvalidInputError."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise InvalidInputError(
            f"`env.reset` must return (observation, info), as in Gymnasium; got {type(result).__name__}, as in the "
            f"old package gym. {_OLD}"
        )
    return result[0]


def check_step(result: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """What `env.step` gave, or InvalidInputError."""
    if isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], dict):
        return result
    if isinstance(result, tuple) and len(result) == 4:
        raise InvalidInputError(
            "`env.step` must return (observation, reward, terminated, truncated, info), as in Gymnasium; got 4 values, "
            f"as in the old package gym, which do not tell terminated from truncated. {_OLD}"
        )
    found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
    raise InvalidInputError(
        f"`env.step` must return (observation, reward, terminated, truncated, info), as in Gymnasium; got {found}. "
        "Check the environment with gymnasium.utils.env_checker.check_env."
    )
