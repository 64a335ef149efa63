"""
Tutorial
========

stub
"""

print(1)
