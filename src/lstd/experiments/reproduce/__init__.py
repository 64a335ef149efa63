"""The whole paper in one command that can be interrupted: its figures, tables, numbers and page.

A plan, the path of a results folder and what an earlier run finished there come in; the files of that folder go out.
`run` carries out the plan; `folder` alone writes to the disk; what they call composes files in memory.
"""
