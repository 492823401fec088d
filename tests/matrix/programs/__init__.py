"""All programs, in the order of the table. A new one is added to its family's
file and to the list at that file's end."""

from . import browser, compilers, databases, languages, python, runtimes, stress, tools

ALL = [
    program()
    for family in (python, databases, runtimes, languages, compilers, tools, stress, browser)
    for program in family.PROGRAMS
]
