"""Interpreters and compiled languages with collectors of their own. Each builds a map, sorts it and
prints sums, so that what is lost or mixed up shows."""

from program import WORKLOADS, Program, run_quietly


class Script(Program):
    """Run as it is: `words`, the file in `workloads`, and how many entries."""

    words = ()
    file = ""
    entries = (200_000, 700_000)

    def command(self, job):
        return [*self.words, WORKLOADS / self.file, job.pick(*self.entries)]


class Php(Script):
    name = "php"
    about = "PHP, arrays of strings: sorted, serialised, read back"
    needs = {"php": "php-cli"}
    words = ("php", "-d", "memory_limit=-1")
    file = "maps.php"


class Octave(Script):
    name = "octave"
    about = "Octave, products, a factorisation and cells of strings"
    needs = {"octave-cli": "octave"}
    words = ("octave-cli", "--no-gui", "--quiet")
    file = "maps.m"
    entries = (800, 1500)


class Guile(Script):
    name = "guile"
    about = "Guile (Boehm's collector), a hash table and its sorted keys"
    needs = {"guile": "guile-3.0"}
    words = ("guile", "--no-auto-compile")
    file = "maps.scm"


class Racket(Script):
    name = "racket"
    about = "Racket (Chez's collector), the same"
    needs = {"racket": "racket"}
    words = ("racket",)
    file = "maps.rkt"


class Prolog(Script):
    name = "swipl"
    about = "SWI-Prolog, lists and a balanced tree"
    needs = {"swipl": "swi-prolog-nox"}
    words = ("swipl", "-q", "--stack-limit=4g")
    file = "maps.pl"
    entries = (100_000, 400_000)


class Lua(Script):
    name = "lua"
    about = "Lua, tables sorted by strings"
    needs = {"lua5.4": "lua5.4"}
    words = ("lua5.4",)
    file = "maps.lua"
    entries = (300_000, 1_500_000)


class Compiled(Program):
    """Compiled bare from `file`, by `compiler` with what it takes."""

    compiler = ()
    file = ""
    entries = (200_000, 800_000)

    def prepare(self, job):
        source = job.inputs / self.file
        source.write_bytes((WORKLOADS / self.file).read_bytes())
        run_quietly([*self.compiler, source, "-o", job.inputs / "maps"], cwd=job.inputs)

    def command(self, job):
        return [job.inputs / "maps", job.pick(*self.entries)]


class Ocaml(Compiled):
    name = "ocaml"
    about = "OCaml, a hash table of strings, folded and sorted"
    needs = {"ocamlopt": "ocaml-nox", "gcc": "gcc"}
    compiler = ("ocamlopt",)
    file = "maps.ml"


class Haskell(Compiled):
    name = "haskell"
    about = "GHC, a map of lists; its heap is a terabyte of addresses"
    needs = {"ghc": "ghc", "/usr/lib/*/libgmp.so": "libgmp-dev"}
    compiler = ("ghc", "-O2", "-v0")
    file = "maps.hs"
    entries = (200_000, 600_000)


PROGRAMS = [Php, Octave, Guile, Racket, Prolog, Lua, Ocaml, Haskell]
