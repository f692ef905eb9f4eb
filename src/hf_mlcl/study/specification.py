"""From a study file to its runs: corpora x losses x seeds x settings, every argument resolved and checked.

A study file is YAML. Everything that sets arguments is a *block*: a mapping from arguments of an experiment or of the
trainer to values, and optionally ``search``, a mapping from arguments to lists of values that are all tried, or the
word ``recipe``: what the recipe of the corpus tries. Blocks are laid over each other, later ones winning:
``defaults``, the corpus's, the loss's, the setting's, then every override whose ``when`` applies. All of them go over
the recipe of the corpus. ``docs/studies.md`` explains it by examples.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hf_mlcl.experiments.settings_file import accepts, hint_name, known_arguments, parse_yaml

Block = Mapping[str, Any]

BLOCK_KEYS = ("search",)
OVERRIDE_KEYS = ("when", "skip", *BLOCK_KEYS)
CONDITIONS = ("corpus", "loss", "kind", "setting")
KINDS = ("contrastive", "logit")
TESTS = ("auto", "seeds", "examples", "none")
KEEP = ("results", "models", "everything")
RECIPE_SEARCH = "recipe"
SCORES = (
    *("micro_f1", "macro_f1", "hamming_loss", "mAP", "accuracy", "subset_accuracy"),
    *("micro_precision", "micro_recall", "macro_precision", "macro_recall"),
)
"""What is measured of validation and of test."""
RUN_METRICS = (
    *(
        f"{split}_{score}"
        for split in ("validation", "test", "direct_validation", "direct_test", "tuned_test")
        for score in SCORES
    ),
    *("alignment", "uniformity", "prr"),
)
"""Every metric that a run may have: ``direct_`` those of a classifier that was trained with the encoder, ``tuned_``
those at tuned thresholds."""
RESERVED = {
    "seed": "the study sets it: list them under `seeds`",
    "data_seed": "the study sets it: list them under `seeds`",
    "output_dir": "every run has a folder of its own inside the study's `output_dir`",
    "resume_from_checkpoint": "a run resumes by itself where it has a checkpoint",
    "push_to_hub": "push the run that you choose with `hf-mlcl push`",
    "hub_token": "nothing is pushed, and settings are written to disk: log in with `hf auth login`",
    "config": "write its settings into the study file",
}
"""Arguments that a study file cannot set, and why."""


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
        kind: Of the loss: ``"contrastive"`` or ``"logit"``. It stands here so that a report need not load losses.
    """

    corpus: str
    loss: str
    setting: str
    seed: int
    arguments: Mapping[str, Any]
    choice: Mapping[str, Any] = field(default_factory=dict)
    kind: str | None = None

    @property
    def id(self) -> str:
        """A readable name with a digest of everything that decides the result: the same run, the same id."""
        what = json.dumps([self.corpus, self.loss, self.setting, self.seed, self.arguments], sort_keys=True)
        digest = hashlib.sha256(what.encode()).hexdigest()[:10]
        parts = [self.corpus, self.loss, *([] if self.setting == "default" else [self.setting]), f"seed{self.seed}"]
        return "-".join([*(re.sub(r"[^A-Za-z0-9_.+]", "_", part) for part in parts), digest])

    @property
    def title(self) -> str:
        """What a person would call it."""
        setting = [] if self.setting == "default" else [self.setting]
        choice = [f"{name}={value}" for name, value in self.choice.items()]
        return " ".join([self.corpus, self.loss, *setting, *choice, f"seed {self.seed}"])

    def to_json(self) -> dict[str, Any]:
        """Everything, for the work list."""
        return {"id": self.id, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """The run that `to_json` wrote down."""
        return cls(**{key: value for key, value in data.items() if key != "id"})


@dataclass(frozen=True)
class ReportOptions:
    """What the tables show.

    Attributes:
        metrics: In this order; names of the test metrics without ``test_``, or of others as they are.
        select_by: Among the searched values, those with the best mean of this metric over seeds are reported.
        test: Paired over ``"seeds"`` or over test ``"examples"``; ``"auto"`` chooses, see `hf_mlcl.study.significance`.
        level: Of significance.
    """

    metrics: Sequence[str] = ("micro_f1", "macro_f1", "hamming_loss")
    select_by: str = "validation_micro_f1"
    test: str = "auto"
    level: float = 0.05


@dataclass(frozen=True)
class Study:
    """A study: its runs and how they are reported.

    Attributes:
        name: Its name.
        output_dir: Folder of the work list and of everything that is made from it.
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
    keep: str = "models"

    def names(self, dimension: str) -> list[str]:
        """The corpora, losses or settings in the order of the file.

        Args:
            dimension: ``"corpus"``, ``"loss"`` or ``"setting"``.
        """
        return list(dict.fromkeys(getattr(run, dimension) for run in self.runs))


def load_study(path: str | Path, changes: Sequence[str] = ()) -> Study:
    """Read a study file.

    Args:
        path: The file, or the name of a ready one (`ready_studies`).
        changes: ``key=value`` with the value in YAML. The key is an argument, set for all runs over everything that
            the file says; or a path into the file such as ``seeds``, ``output_dir`` or ``corpora.aapd.data_dir``.

    Raises:
        StudyError: If anything in it is wrong, with the key and what would be right.
    """
    return _reader(path, changes).study()


def load_outline(path: str | Path) -> Study:
    """Read what a study file says beside its runs: name, folder, report. It takes no time and leaves `runs` empty.

    Args:
        path: The file, or the name of a ready one.

    Raises:
        StudyError: If anything of this is wrong.
    """
    return _reader(path).outline()


def ready_studies() -> dict[str, Path]:
    """The study files that come with the package, by name.

    Examples:
        >>> sorted(ready_studies())[:2]
        ['figure_alpha', 'figure_data_share']
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
        raise StudyError(f"{path} must be a mapping with the keys {', '.join(_TOP)}; it is {_kind(document)}.")
    return _Reader(path, document, changes)


_TOP = (
    *("name", "description", "output_dir", "keep", "report"),
    *("corpora", "losses", "seeds", "settings", "defaults", "overrides"),
)


class _Reader:
    """Reads one document; every error says where in which file."""

    def __init__(self, source: Path, document: dict[str, Any], changes: Sequence[str]) -> None:
        self.source = source
        self.document = document
        self._checked: set[str] = set()
        self.last_block = self._apply(changes)

    @functools.cached_property
    def known(self) -> dict[str, Any]:
        return known_arguments()  # loads the trainer, which a report does without

    def error(self, where: str, message: str) -> StudyError:
        return StudyError(f"{self.source}, {where}: {message}")

    # The file's parts ---------------------------------------------------------------------------------------------

    def study(self) -> Study:
        outline = self.outline()
        return dataclasses.replace(outline, runs=tuple(self._runs()))

    def outline(self) -> Study:
        for key in self.document:
            self._check_key(key, _TOP, "top level")
        name = self._text("name", self.source.stem)
        return Study(
            name=name,
            output_dir=Path(self._text("output_dir", f"outputs/{name}")).expanduser(),
            runs=(),
            description=" ".join(self._text("description", "").split()),
            report=self._report(),
            keep=self._keep(),
        )

    def _runs(self) -> list[Run]:
        from hf_mlcl.data import list_corpora

        corpora, losses = self._named("corpora"), self._named("losses")
        settings = self._named("settings") if self.document.get("settings") else {"default": {}}
        overrides = self._overrides(corpora, losses, settings)
        defaults = self._block(self.document.get("defaults") or {}, "defaults")
        for corpus, block in corpora.items():
            if block.get("corpus", corpus) not in list_corpora():
                self._check_key(block.get("corpus", corpus), list_corpora(), f"corpora.{corpus}", what="corpus")
        runs = []
        for seed, corpus, setting, loss in itertools.product(self._seeds(), corpora, settings, losses):
            own_loss = str(losses[loss].get("loss", loss))
            facts = {"corpus": corpus, "loss": loss, "setting": setting, "kind": self._kind_of(own_loss, loss)}
            chosen = [block for when, block in overrides if _applies(when, facts)]
            if any(block.get("skip") for block in chosen):
                continue
            layers = [defaults, {"corpus": corpus}, corpora[corpus], {"loss": loss}, losses[loss], settings[setting]]
            values, search, from_recipe = _merged([*layers, *chosen, self.last_block])
            for choice in _choices(search, self._recipe_points(values, search) if from_recipe else [{}]):
                arguments = _nested({**values, **choice, "seed": seed})
                runs.append(Run(corpus, loss, setting, seed, arguments, choice, facts["kind"]))
                self._check_run(runs[-1])
        if not runs:
            raise self.error("overrides", "every run is skipped; nothing is left to do.")
        return runs

    def _recipe_points(self, values: Mapping[str, Any], search: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What the recipe of the corpus tries for the loss, without what the file sets itself."""
        from hf_mlcl.experiments import study_recipe

        grid = study_recipe(values["corpus"]).grid(values["loss"], values.get("size", "full"))
        points = [dict(_flat(point)) for point in grid]
        varied = [key for key in points[0] if key not in values and key not in search]
        varied = [key for key in varied if any(point[key] != points[0][key] for point in points)]
        chosen = [{key: point[key] for key in varied} for point in points]
        return [point for number, point in enumerate(chosen) if point not in chosen[:number]]

    def _named(self, key: str) -> dict[str, dict[str, Any]]:
        """Corpora, losses or settings: a list of names, or a mapping from names to blocks."""
        value = self.document.get(key)
        if not value or not isinstance(value, list | dict):
            raise self.error(key, f"name at least one, as a list or as a mapping to arguments; it is {_kind(value)}.")
        pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ((name, {}) for name in value)
        named: dict[str, dict[str, Any]] = {}
        for name, block in pairs:
            if not isinstance(name, str):
                raise self.error(key, f"a name must be text, but {name!r} is {_kind(name)}; quote it.")
            if name in named:
                raise self.error(key, f"{name!r} stands there twice.")
            own = {"corpora": ("corpus",), "losses": ("loss",)}.get(key, ())
            named[name] = self._block({} if block is None else block, f"{key}.{name}", own=own)
        return named

    def _overrides(
        self, corpora: Mapping[str, Any], losses: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> list[tuple[dict[str, list[Any]], dict[str, Any]]]:
        given = self.document.get("overrides") or []
        if not isinstance(given, list):
            raise self.error("overrides", f"must be a list of blocks with `when`; it is {_kind(given)}.")
        valid = {"corpus": corpora, "loss": losses, "setting": settings, "kind": KINDS}
        overrides = []
        for number, item in enumerate(given, start=1):
            where = f"overrides, number {number}"
            if not isinstance(item, dict) or not isinstance(item.get("when"), dict):
                raise self.error(where, "must have `when`, a mapping such as {loss: [reg], corpus: aapd}.")
            when = {}
            for key, names in item["when"].items():
                self._check_key(key, CONDITIONS, f"{where}, when")
                when[key] = names if isinstance(names, list) else [names]
                for name in when[key]:
                    self._check_key(name, list(valid[key]), f"{where}, when", what=key)
            overrides.append((when, self._block(item, where, own=OVERRIDE_KEYS)))
        return overrides

    def _seeds(self) -> list[int]:
        seeds = self.document.get("seeds", [0])
        if isinstance(seeds, int) and not isinstance(seeds, bool):
            raise self.error("seeds", f"must be a list of seeds, such as [{seeds}]; it is the number {seeds}.")
        if not isinstance(seeds, list) or not seeds or any(type(seed) is not int or seed < 0 for seed in seeds):
            raise self.error("seeds", f"must be a list of whole numbers, such as [0, 1, 2]; it is {seeds!r}.")
        if len(set(seeds)) != len(seeds):
            raise self.error("seeds", f"has one twice: {seeds}.")
        return seeds

    def _report(self) -> ReportOptions:
        given = self.document.get("report") or {}
        if not isinstance(given, dict):
            raise self.error("report", f"must be a mapping; it is {_kind(given)}.")
        for key in given:
            self._check_key(key, [f.name for f in dataclasses.fields(ReportOptions)], "report")
        options = ReportOptions(**given)
        if options.test not in TESTS:
            self._check_key(options.test, TESTS, "report.test", what="test")
        if isinstance(options.metrics, str) or not all(isinstance(metric, str) for metric in options.metrics):
            raise self.error("report.metrics", f"must be a list of names; it is {options.metrics!r}.")
        for metric in options.metrics:
            self._check_key(metric, (*SCORES, *RUN_METRICS), "report.metrics", what="metric")
        self._check_key(options.select_by, RUN_METRICS, "report.select_by", what="metric")
        if not isinstance(options.level, float) or not 0 < options.level < 1:
            raise self.error("report.level", f"must lie between 0 and 1, such as 0.05; it is {options.level!r}.")
        return dataclasses.replace(options, metrics=tuple(options.metrics))

    def _keep(self) -> str:
        keep = self.document.get("keep", "models")
        self._check_key(keep, KEEP, "keep", what="choice")
        return str(keep)

    def _text(self, key: str, default: str) -> str:
        value = self.document.get(key, default)
        if not isinstance(value, str) or (key != "description" and not value.strip()):
            raise self.error(key, f"must be text; it is {value!r}.")
        return value

    # Blocks -------------------------------------------------------------------------------------------------------

    def _block(self, block: Any, where: str, own: Sequence[str] = ()) -> dict[str, Any]:
        """A checked block; `own` are keys beyond the arguments."""
        if not isinstance(block, dict):
            raise self.error(where, f"must be a mapping from arguments to values; it is {_kind(block)}.")
        for key, value in block.items():
            if key == "search":
                self._check_search(value, f"{where}.search")
            elif key == "skip" and key in own:
                if not isinstance(value, bool):
                    raise self.error(f"{where}.skip", f"must be true or false; it is {value!r}.")
            elif key not in own:
                self._check_argument(key, value, where)
        return {key: value for key, value in block.items() if key != "when"}

    def _check_search(self, search: Any, where: str) -> None:
        if search == RECIPE_SEARCH:
            return
        if not isinstance(search, dict):
            wanted = f"must be a mapping from arguments to lists of values, or the word {RECIPE_SEARCH!r}"
            raise self.error(where, f"{wanted}; it is {_kind(search)}.")
        for key, values in search.items():
            if not isinstance(values, list) or not values:
                raise self.error(f"{where}.{key}", f"must be a list of values to try; it is {_kind(values)}.")
            for value in values:
                self._check_argument(key, value, where)

    def _check_argument(self, key: Any, value: Any, where: str) -> None:
        name = str(key).partition(".")[0]
        if name in RESERVED:
            raise self.error(where, f"{name!r} cannot be set here; {RESERVED[name]}.")
        if name in ("corpus", "loss"):
            plural = {"corpus": "corpora", "loss": "losses"}[name]
            raise self.error(where, f"{name!r} cannot be set here; name it under `{plural}`.")
        self._check_key(name, [known for known in self.known if known not in RESERVED], where, what="argument")
        hint = self.known[name]
        if "." in str(key):
            if not accepts(hint, {}):
                raise self.error(where, f"{key!r}: {name!r} has no parts; only arguments that are mappings have.")
        elif not accepts(hint, value):
            raise self.error(f"{where}.{key}", f"must be {hint_name(hint)}; it is {value!r}.")

    def _check_key(self, key: Any, valid: Sequence[str], where: str, what: str = "key") -> None:
        if key in valid:
            return
        alike = {name: difflib.SequenceMatcher(None, str(key).lower(), name.lower()).ratio() for name in valid}
        nearest = sorted(valid, key=lambda name: -alike[name])
        listed = ", ".join(nearest[:8]) + (f" and {len(nearest) - 8} more" if len(nearest) > 8 else "")
        raise self.error(where, f"there is no {what} {key!r}. Nearest: {listed}.")

    def _kind_of(self, loss: str, name: str) -> str:
        from hf_mlcl.losses import on_logits_only

        try:
            return "logit" if on_logits_only(loss) else "contrastive"
        except ValueError as error:
            raise self.error(f"losses.{name}", str(error)) from error

    def _check_run(self, run: Run) -> None:
        """Build all arguments of a run once, whatever its seed: what is out of range is found before the first run."""
        from hf_mlcl.study.execution import check_arguments

        key = json.dumps({**run.arguments, "seed": 0}, sort_keys=True)
        if key not in self._checked:
            try:
                check_arguments(run)
            except (TypeError, ValueError) as error:
                raise self.error(f"run {run.title}", str(error)) from error
            self._checked.add(key)

    # Changes from the command line --------------------------------------------------------------------------------

    def _apply(self, changes: Sequence[str]) -> dict[str, Any]:
        """Change the document, and return the block of arguments that goes over everything."""
        block: dict[str, Any] = {}
        for change in changes:
            key, equals, text = change.partition("=")
            where = f"change {change!r}"
            if not equals or not key:
                raise self.error(where, "must be key=value, such as num_train_epochs=3 or seeds=[0,1].")
            try:
                value = parse_yaml(text)
            except yaml.YAMLError as error:
                raise self.error(where, f"its value is not valid YAML: {error}") from error
            first, *rest = key.split(".")
            if first not in _TOP:
                self._check_argument(key, value, where)
                block[key] = value
                continue
            parent = self.document
            for part, below in zip([first, *rest], rest, strict=False):
                if isinstance(parent.get(part), list) and all(isinstance(name, str) for name in parent[part]):
                    parent[part] = {name: {} for name in parent[part]}  # so that a name of a list can have a block
                if parent.get(part) is None:
                    parent[part] = {}
                if not isinstance(parent[part], dict):
                    raise self.error(where, f"{part!r} is {_kind(parent[part])} and has no {below!r}.")
                if part in ("corpora", "losses", "settings"):
                    self._check_key(below, list(parent[part]), where, what="name")
                parent = parent[part]
            parent[rest[-1] if rest else first] = value
        return block


def _applies(when: Mapping[str, list[Any]], facts: Mapping[str, str]) -> bool:
    return all(facts[key] in names for key, names in when.items())


def _merged(blocks: Sequence[Block]) -> tuple[dict[str, Any], dict[str, list[Any]], bool]:
    """Values and searched values by dotted name, later blocks over earlier ones; whether recipes are searched too."""
    values: dict[str, Any] = {}
    search: dict[str, list[Any]] = {}
    from_recipe = False
    for block in blocks:
        plain = {key: value for key, value in block.items() if key not in OVERRIDE_KEYS}
        for key, value in _flat(plain):
            _forget(key, values, search)
            values[key] = value
        if block.get("search") == RECIPE_SEARCH:
            from_recipe = True
            continue
        for key, tried in block.get("search", {}).items():
            _forget(key, values, search)
            search[key] = tried
    return values, search, from_recipe


def _forget(key: str, *tables: dict[str, Any]) -> None:
    for table in tables:
        for known in [known for known in table if known == key or known.startswith(f"{key}.")]:
            del table[known]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `_flat`.

    Examples:
        >>> _nested({"loss": "reg", "loss_kwargs.alpha": 1})
        {'loss': 'reg', 'loss_kwargs': {'alpha': 1}}
    """
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        inner = nested
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return nested


def _choices(search: Mapping[str, list[Any]], points: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of searched values with every point; one empty choice where nothing is searched.

    Examples:
        >>> list(_choices({"learning_rate": [1, 2]}, [{"loss_kwargs.alpha": 0}]))
        [{'loss_kwargs.alpha': 0, 'learning_rate': 1}, {'loss_kwargs.alpha': 0, 'learning_rate': 2}]
    """
    for point, *combination in itertools.product(points, *search.values()):
        yield {**point, **dict(zip(search, combination, strict=True))}


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    names: dict[Any, str] = {dict: "a mapping", list: "a list", str: f"the text {value!r}"}
    return names.get(type(value), repr(value))
