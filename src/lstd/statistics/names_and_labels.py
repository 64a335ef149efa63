from lstd.statistics.counts import UNKNOWN, About

__all__ = ["UNKNOWN", "About"]
