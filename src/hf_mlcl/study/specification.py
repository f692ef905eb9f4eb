"""From a study file to its runs: corpora x losses x seeds x settings, every argument resolved and checked.

Everything that sets arguments is a *block*: a mapping from arguments of an experiment or of the trainer to values, and
optionally ``search``, a mapping from arguments to lists of values that are all tried, or the word ``recipe``: what the
recipe of the corpus tries. Blocks go over the recipe of the corpus, later ones over earlier: ``defaults``, the
corpus's, the loss's, the setting's, then every override whose ``when`` applies. See ``docs/studies.md``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from hf_mlcl.data.errors import CorpusError
from hf_mlcl.errors import unknown_name
from hf_mlcl.experiments.settings_file import accepts, hint_name, known_arguments, parse_yaml
from hf_mlcl.files import RUNS_FOLDER

TOP = (
    *("name", "description", "output_dir", "keep", "report"),
    *("corpora", "losses", "seeds", "settings", "defaults", "overrides"),
)
NAMED = ("corpora", "losses", "settings")
"""What a file gives names to, as a list or with a block of arguments each."""
RECIPE_SEARCH = "recipe"
SCORES = (
    *("micro_f1", "macro_f1", "hamming_loss", "mAP", "accuracy", "subset_accuracy"),
    *("micro_precision", "micro_recall", "macro_precision", "macro_recall"),
)
SPLITS = ("validation", "test", "direct_validation", "direct_test", "tuned_test", "best_test", "best_tuned_test")
"""``direct_``: of a classifier that was trained with the encoder; ``tuned_``: at tuned thresholds; ``best_``: with
``best_heads``."""
RUN_METRICS = (*(f"{split}_{score}" for split in SPLITS for score in SCORES), "alignment", "uniformity", "prr")
"""Every metric that a run may have."""
LOWER_IS_BETTER = ("hamming_loss", "alignment", "uniformity")
"""What the names of such metrics end in."""
CHOOSING_METRICS = tuple(name for name in RUN_METRICS if name.startswith(("validation_", "direct_validation_")))
"""Those that may choose among searched values: test rows decide nothing."""
CLAIM = {"text": str, "metric": str, "better": list[str], "worse": list[str]}
"""What a claim of a report says."""
RESERVED = {
    "when": "it is for `overrides`",
    "skip": "it is for `overrides`",
    "corpus": "name it under `corpora`",
    "loss": "name it under `losses`",
    "seed": "the study sets it: list them under `seeds`",
    "data_seed": "the study sets it: list them under `seeds`",
    "output_dir": "every run has a folder of its own inside the study's `output_dir`",
    "resume_from_checkpoint": "a run resumes by itself where it has a checkpoint",
    "push_to_hub": "push the run that you choose with `hf-mlcl push`",
    "hub_token": "nothing is pushed, and settings are written to disk: log in with `hf auth login`",
    "config": "write its settings into the study file",
}
"""What a block cannot set, and why."""


class StudyError(ValueError):
    """What is wrong with a study file, and where."""


@dataclass(frozen=True)
class Run:
    """One training and its evaluation.

    Attributes:
        corpus: Its name in the study file, which is the corpus's own unless the file says otherwise.
        loss: The same for the loss.
        setting: Name of the setting; ``"default"`` where the file has none.
        seed: Of initialisation, order and dropout.
        arguments: Every argument that the file sets, by name.
        choice: The searched arguments' values in this run, by dotted name.
        kind: Of the loss: ``"contrastive"`` or ``"logit"``.
    """

    corpus: str
    loss: str
    setting: str
    seed: int
    arguments: Mapping[str, Any]
    choice: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "contrastive"

    @property
    def id(self) -> str:
        """A readable name with a digest of everything that decides the result: the same run, the same id."""
        what = json.dumps([self.corpus, self.loss, self.setting, self.seed, self.arguments], sort_keys=True)
        digest = hashlib.sha256(what.encode()).hexdigest()[:10]
        parts = [self.corpus, self.loss, *self._setting, f"seed{self.seed}"]
        return "-".join([*(re.sub(r"[^A-Za-z0-9_.+]", "_", part) for part in parts), digest])

    @property
    def title(self) -> str:
        """What a person would call it."""
        choice = [f"{name}={value}" for name, value in self.choice.items()]
        return " ".join([self.corpus, self.loss, *self._setting, *choice, f"seed {self.seed}"])

    @property
    def _setting(self) -> list[str]:
        return [] if self.setting == "default" else [self.setting]


@dataclass(frozen=True)
class ReportOptions:
    """What the tables show.

    Attributes:
        metrics: In this order; names of the test metrics without ``test_``, or of others as they are.
        select_by: Among the searched values, those with the best mean of this metric over seeds are reported.
        test: Paired over ``"seeds"`` or over test ``"examples"``; ``"auto"`` chooses, see `hf_mlcl.study.significance`.
        level: Of significance.
        claims: Sentences to judge beside the paper's, each with ``text``, ``metric`` and the names of losses,
            ``better`` and ``worse``: the best of these is compared with the best of those.
    """

    metrics: Sequence[str] = ("micro_f1", "macro_f1", "hamming_loss")
    select_by: str = "validation_micro_f1"
    test: Literal["auto", "seeds", "examples", "none"] = "auto"
    level: float = 0.05
    claims: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Study:
    """A study: its runs and how they are reported.

    Attributes:
        name: Its name.
        output_dir: Folder of the results and of everything that is made from them.
        runs: In the order in which they are begun.
        description: A sentence or two for the report.
        report: What the tables show.
        keep: What stays of a finished run beside its result: ``"results"`` (small files only), ``"models"`` (encoder
            and classifier) or ``"everything"`` (checkpoints too).
    """

    name: str
    output_dir: Path
    runs: tuple[Run, ...]
    description: str = ""
    report: ReportOptions = field(default_factory=ReportOptions)
    keep: Literal["results", "models", "everything"] = "models"

    def names(self, dimension: str) -> list[str]:
        """The corpora, losses or settings (`dimension`: an attribute of `Run`) in the order of the file."""
        return list(dict.fromkeys(getattr(run, dimension) for run in self.runs))

    def run_folder(self, run: Run) -> Path:
        """Where a run's files are."""
        return self.output_dir / RUNS_FOLDER / run.id


def load_study(path: str | Path, changes: Sequence[str] = ()) -> Study:
    """Read a study file; a `StudyError` names what is wrong in it, and what would be right.

    Args:
        path: The file, or the name of a ready one (`ready_studies`).
        changes: ``key=value`` with the value in YAML. The key is an argument, set for all runs over everything that
            the file says; or a path into the file such as ``seeds``, ``output_dir`` or ``corpora.aapd.data_dir``.
    """
    reader = _reader(path, changes)
    return dataclasses.replace(reader.outline(), runs=tuple(reader.runs()))


def load_outline(path: str | Path) -> Study:
    """What a study file (or a ready one, by name) says beside its runs, which stay empty. It takes no time."""
    return _reader(path).outline()


def ready_studies() -> dict[str, Path]:
    """The study files that come with the package, by name.

    Examples:
        >>> sorted(ready_studies())[-2:]
        ['table_semeval', 'table_small']
    """
    return {file.stem: file for file in sorted((Path(__file__).parents[1] / "studies").glob("*.yaml"))}


def _reader(path: str | Path, changes: Sequence[str] = ()) -> _Reader:
    ready = ready_studies()
    path = ready[str(path)] if str(path) in ready and not Path(path).is_file() else Path(path)
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StudyError(f"There is no study file {str(path)!r}. Ready ones, by name: {', '.join(ready)}.") from None
    except IsADirectoryError:
        raise StudyError(f"{str(path)!r} is a folder; a study file is YAML.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(document, dict):
        raise StudyError(f"{path} must be a mapping with the keys {', '.join(TOP)}; it is {document!r}.")
    return _Reader(path, document, changes)


class _Reader:
    """Reads one document; every error says where in which file."""

    def __init__(self, source: Path, document: dict[str, Any], changes: Sequence[str]) -> None:
        self.source, self.document = source, document
        self.last_block: dict[str, Any] = {}  # goes over everything
        # Overrides and claims may name what a change leaves out.
        self.declared = {key: names if isinstance(names := document.get(key), list | dict) else () for key in NAMED}
        for change in changes:
            self._apply(change)

    def error(self, where: str, message: str) -> StudyError:
        return StudyError(f"{self.source}, {where}: {message}")

    @contextmanager
    def located(self, where: str) -> Iterator[None]:
        """What is wrong in the block is wrong there."""
        try:
            yield
        except (TypeError, ValueError, CorpusError) as error:
            raise self.error(where, str(error)) from error

    def check_type(self, where: str, value: Any, hint: Any) -> Any:
        if not accepts(hint, value):
            raise self.error(where, f"must be {hint_name(hint)}; it is {value!r}.")
        return value

    def check_name(self, where: str, name: Any, valid: Sequence[str], what: str = "key") -> None:
        if name not in valid:
            raise self.error(where, unknown_name(what, name, valid, most=8))

    def outline(self) -> Study:
        for key in self.document:
            self.check_name("top level", key, TOP)
        name = self._top("name", str, self.source.stem)
        return Study(
            name=name,
            output_dir=Path(self._top("output_dir", str, f"outputs/{name}")).expanduser(),
            runs=(),
            description=" ".join(self._top("description", str, "").split()),
            report=self._report(),
            keep=self._top("keep", typing.get_type_hints(Study)["keep"], "models"),
        )

    def _top(self, key: str, hint: Any, default: Any) -> Any:
        value = self.document.get(key)
        return default if value in (None, "") else self.check_type(key, value, hint)

    def _report(self) -> ReportOptions:
        given = self._top("report", dict, {})
        hints = {**typing.get_type_hints(ReportOptions), "metrics": list[str], "claims": list[dict[str, Any]]}
        for key, value in given.items():
            self.check_name("report", key, list(hints))
            self.check_type(f"report.{key}", value, hints[key])
        options = ReportOptions(**given)
        for metric in options.metrics:
            self.check_name("report.metrics", metric, (*SCORES, *RUN_METRICS), what="metric")
        self.check_name("report.select_by", options.select_by, CHOOSING_METRICS, what="metric of validation")
        if not 0 < options.level < 1:
            raise self.error("report.level", f"must lie between 0 and 1, such as 0.05; it is {options.level!r}.")
        return dataclasses.replace(
            options, metrics=tuple(options.metrics), claims=tuple(map(self._claim, options.claims))
        )

    def _claim(self, claim: Mapping[str, Any]) -> dict[str, Any]:
        """A claim that says all it has to, its metric by the name that tables print."""
        where = "report.claims"
        for key in claim:
            self.check_name(where, key, list(CLAIM))
        for key, hint in CLAIM.items():
            if not claim.get(key):
                raise self.error(where, f"every claim must have {', '.join(CLAIM)}; {key} is missing from {claim!r}.")
            self.check_type(f"{where}.{key}", claim[key], hint)
        self.check_name(f"{where}.metric", claim["metric"], (*SCORES, *RUN_METRICS), what="metric")
        if both := sorted({*claim["better"]} & {*claim["worse"]}):
            raise self.error(where, f"{both[0]!r} stands on both sides of {claim['text']!r}: leave it out of one.")
        return {**claim, "metric": claim["metric"].removeprefix("test_")}

    def runs(self) -> list[Run]:
        from hf_mlcl.data import list_corpora
        from hf_mlcl.experiments.parsing import import_plugins
        from hf_mlcl.losses import on_logits_only
        from hf_mlcl.study.execution import check_arguments

        corpora, losses = self._named("corpora"), self._named("losses")
        settings = self._named("settings") if self.document.get("settings") else {"default": {}}
        defaults = self._block("defaults", self.document.get("defaults") or {})
        for block in (defaults, *losses.values(), self.last_block):  # losses of the user, of which some may be named
            with self.located("plugins"):
                import_plugins(self.check_type("plugins", block.get("plugins") or [], list[str]))
        kinds = {}
        for loss, block in losses.items():
            with self.located(f"losses.{loss}"):
                kinds[loss] = "logit" if on_logits_only(str(block.get("loss", loss))) else "contrastive"
        now = dict(zip(NAMED, (corpora, losses, settings), strict=True))
        names = {key: list(dict.fromkeys([*self.declared[key], *now[key]])) for key in NAMED}
        for claim in self._top("report", dict, {}).get("claims", ()):
            for loss in (*claim["better"], *claim["worse"]):
                self.check_name("report.claims", loss, names["losses"], what="loss")
        known = {"corpus": names["corpora"], "loss": names["losses"], "setting": names["settings"]}
        overrides = self._overrides({**known, "kind": ["contrastive", "logit"]})
        for corpus, block in corpora.items():
            name = block.get("corpus", corpus)
            if not isinstance(name, str) or not ("/" in name or Path(name).exists()):  # data of your own
                self.check_name(f"corpora.{corpus}", name, list_corpora(), what="corpus or file")
        runs: list[Run] = []
        checked: set[str] = set()
        for seed, corpus, setting, loss in itertools.product(self._seeds(), corpora, settings, losses):
            facts = {"corpus": corpus, "loss": loss, "setting": setting, "kind": kinds[loss]}
            chosen = [block for when, block in overrides if all(facts[key] in names for key, names in when.items())]
            if any(block.get("skip") for block in chosen):
                continue
            layers = [defaults, {"corpus": corpus}, corpora[corpus], {"loss": loss}, losses[loss], settings[setting]]
            values, search, from_recipe = _merged([*layers, *chosen, self.last_block])
            points = _recipe_points(values, search) if from_recipe else [{}]
            for point, *combination in itertools.product(points, *search.values()):
                choice = {**point, **dict(zip(search, combination, strict=True))}
                arguments = _nested({**values, **choice, "seed": seed})
                runs.append(Run(corpus, loss, setting, seed, arguments, choice, kinds[loss]))
                # All arguments are built once, whatever the seed: what is out of range is found before the first run.
                key = json.dumps({**arguments, "seed": 0}, sort_keys=True)
                if key not in checked:
                    with self.located(f"run {runs[-1].title}"):
                        check_arguments(runs[-1])
                    checked.add(key)
        if not runs:
            raise self.error("overrides", "every run is skipped; nothing is left to do.")
        return runs

    def _named(self, key: str) -> dict[str, dict[str, Any]]:
        """Corpora, losses or settings: a list of names, or a mapping from names to blocks."""
        value = self.document.get(key)
        if not value or not isinstance(value, list | dict):
            raise self.error(key, f"name at least one, as a list or as a mapping to arguments; it is {value!r}.")
        pairs = list(value.items()) if isinstance(value, dict) else [(name, None) for name in value]
        named: dict[str, dict[str, Any]] = {}
        for name, block in pairs:
            if not isinstance(name, str):
                raise self.error(key, f"a name must be text; quote {name!r}.")
            if name in named:
                raise self.error(key, f"{name!r} stands there twice.")
            own = {"corpora": ("corpus",), "losses": ("loss",)}.get(key, ())
            named[name] = self._block(f"{key}.{name}", {} if block is None else block, own)
        return named

    def _overrides(self, valid: Mapping[str, Any]) -> list[tuple[dict[str, list[Any]], dict[str, Any]]]:
        overrides = []
        for number, item in enumerate(self._top("overrides", list, []), start=1):
            where = f"overrides, number {number}"
            if not isinstance(item, dict) or not isinstance(item.get("when"), dict):
                raise self.error(where, "must have `when`, a mapping such as {loss: [reg], corpus: aapd}.")
            when = {key: names if isinstance(names, list) else [names] for key, names in item["when"].items()}
            for key, names in when.items():
                self.check_name(f"{where}, when", key, list(valid))
                for name in names:
                    self.check_name(f"{where}, when", name, list(valid[key]), what=key)
            block = {key: value for key, value in item.items() if key != "when"}
            self.check_type(f"{where}.skip", block.get("skip", False), bool)
            overrides.append((when, self._block(where, block, own=("skip",))))
        return overrides

    def _seeds(self) -> list[int]:
        seeds: list[int] = self.check_type("seeds", self.document.get("seeds", [0]), list[int])
        if not seeds or min(seeds) < 0 or len(set(seeds)) != len(seeds):
            raise self.error("seeds", f"must be different whole numbers from 0, such as [0, 1, 2]; it is {seeds}.")
        return seeds

    def _block(self, where: str, block: Any, own: Sequence[str] = ()) -> dict[str, Any]:
        """A block as it is; its arguments are checked run by run. `own` are keys beyond those that every block has."""
        if not isinstance(block, dict):
            raise self.error(where, f"must be a mapping from arguments to values; it is {block!r}.")
        search = block.get("search", {})
        if search != RECIPE_SEARCH and not isinstance(search, dict):
            wanted = f"must be a mapping from arguments to lists of values, or the word {RECIPE_SEARCH!r}"
            raise self.error(f"{where}.search", f"{wanted}; it is {search!r}.")
        searched = {} if search == RECIPE_SEARCH else search
        for key, values in searched.items():
            if not isinstance(values, list) or not values:
                raise self.error(f"{where}.search.{key}", f"must be a list of values to try; it is {values!r}.")
        for key in (*block, *searched):
            if key in RESERVED and key not in own:
                raise self.error(where, f"{key!r} cannot be set here; {RESERVED[key]}.")
        return block

    def _apply(self, change: str) -> None:
        """Change the document, or the block of arguments that goes over everything."""
        key, equals, text = change.partition("=")
        where = f"change {change!r}"
        if not equals or not key:
            raise self.error(where, "must be key=value, such as num_train_epochs=3 or seeds=[0,1].")
        try:
            value = parse_yaml(text)
        except yaml.YAMLError as error:
            raise self.error(where, f"its value is not valid YAML: {error}") from error
        first, *rest = key.split(".")
        if first not in TOP:
            self.check_name(where, first, (*TOP, *known_arguments()), what="argument")
            self.last_block |= self._block(where, {key: value})
            return
        parent = self.document
        for part, below in zip([first, *rest], rest, strict=False):
            if isinstance(parent.get(part), list) and all(isinstance(name, str) for name in parent[part]):
                parent[part] = {name: {} for name in parent[part]}  # so that a name of a list can have a block
            if parent.get(part) is None:
                parent[part] = {}
            if not isinstance(parent[part], dict):
                raise self.error(where, f"{part!r} is {parent[part]!r} and has no {below!r}.")
            if part in NAMED:
                self.check_name(where, below, list(parent[part]), what="name")
            parent = parent[part]
        blocks = parent.get(key) if key in NAMED else None
        if accepts(list[str], value) and isinstance(blocks, dict) and len({*value}) == len(value):
            value = {name: blocks.get(name) for name in value}  # chosen among those of the file, as they are there
        parent[rest[-1] if rest else first] = value


def _merged(blocks: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, list[Any]], bool]:
    """Values and searched values by dotted name, later blocks over earlier ones; whether recipes are searched too."""
    values: dict[str, Any] = {}
    search: dict[str, list[Any]] = {}
    searches = [block.get("search", {}) for block in blocks]
    for block, tried in zip(blocks, searches, strict=True):
        plain = flat({key: value for key, value in block.items() if key not in ("search", "skip")})
        for target, pairs in ((values, plain), (search, tried.items() if tried != RECIPE_SEARCH else ())):
            for key, value in pairs:
                for table in (values, search):
                    for known in [known for known in table if known == key or known.startswith(f"{key}.")]:
                        del table[known]
                target[key] = value
    return values, search, RECIPE_SEARCH in searches


def _recipe_points(values: Mapping[str, Any], search: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the recipe of the corpus tries for the loss, without what the file sets itself."""
    from hf_mlcl.experiments.recipe import unique
    from hf_mlcl.study.execution import recipe_of

    grid = recipe_of(values).grid(values["loss"], values.get("size", "full"))
    points = [dict(flat(point)) for point in grid]
    free = [key for key in points[0] if key not in values and key not in search]
    varied = [key for key in free if any(point[key] != points[0][key] for point in points)]
    return unique({key: point[key] for key in varied} for point in points)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted name; labels may have dots in theirs, so that descriptions of them stay together.

    Examples:
        >>> list(flat({"loss": "reg", "loss_kwargs": {"alpha": 1}}))
        [('loss', 'reg'), ('loss_kwargs.alpha', 1)]
    """
    for key, value in values.items():
        if isinstance(value, dict) and value and key != "label_descriptions":
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        inner = nested
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return nested
