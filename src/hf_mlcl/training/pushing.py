"""The trainer's way to the Hub: its model card, and pushes that upload the model and nothing else of a folder."""

from __future__ import annotations

import logging
import shutil
import tempfile
from concurrent.futures import Future
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from transformers import Trainer
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import HubStrategy
from transformers.utils import PushInProgress

from hf_mlcl.files import link_or_copy
from hf_mlcl.hub import intended_files, push_folder, write_model_card
from hf_mlcl.training.card_facts import training_report

logger = logging.getLogger(__name__)


class PushingTrainer(Trainer):
    """HF's `Trainer` with model cards and pushes of our own."""

    def create_model_card(
        self,
        language: str | list[str] | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | None = None,
        dataset: str | None = None,
        dataset_args: Any = None,
        *,
        evaluation: Any = None,
        figures: bool = True,
    ) -> None:
        """Write a card for the model that was saved in ``args.output_dir``, and its pictures beside it; on all ranks.

        Args:
            language: Codes of the data's languages, such as ``"en"``.
            license: Of the model, as the Hub spells it, such as ``"apache-2.0"``.
            tags: Further tags.
            model_name: The card's title; the repository's or the folder's name if not given.
            finetuned_from: The backbone's Hub id, where it is not known.
            tasks: As in HF's, whose scripts pass it; the model itself tells its task.
            dataset_tags: The data's id on the Hub, ``"owner/name"``, so that results are listed there.
            dataset: See `training_report`, as for the rest.
            dataset_args: As in HF's; not used.
            evaluation: Whose scores to show.
            figures: Whether to draw pictures of the space.
        """
        facts = {
            "language": [language] if isinstance(language, str) else language,
            "license": license,
            "tags": [tags] if isinstance(tags, str) else tags,
            "name": model_name,
            "base_model": finetuned_from,
        }
        report = training_report(
            self, evaluation=evaluation, dataset=dataset, dataset_id=dataset_tags, figures=figures, **facts
        )
        if self.is_world_process_zero():
            write_model_card(self.args.output_dir, report, repo_id=self.hub_model_id)

    def init_hf_repo(self, token: str | None = None) -> None:
        """Make the repository, private unless ``hub_private_repo=False``. One that exists stays as it is."""
        if self.args.hub_private_repo is None:
            self.args.hub_private_repo = True
        super().init_hf_repo(token=token)

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        **card: Any,
    ) -> Any:
        """Save the encoder, write its card, and upload both for everybody to load: nothing else of the output folder.

        Args:
            commit_message: First line of the commit.
            blocking: Whether to wait; otherwise a future is returned.
            token: Of the user; ``args.hub_token``, or that of ``hf auth login``, if not given.
            revision: The branch; ``args.hub_revision``, or the main one, if not given.
            **card: Arguments of `create_model_card`.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        token = token if token is not None else self.args.hub_token
        if self.hub_model_id is None:
            self.init_hf_repo(token=token)
        self.save_model(_internal_call=True)
        self.create_model_card(**card)
        if not self.is_world_process_zero():
            return None
        self._finish_current_push()
        return self._push(self.args.output_dir, commit_message or "End of training", blocking, token, revision)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Push the model of a checkpoint while training goes on, as ``args.hub_strategy`` says.

        HF's own would upload whatever lies in the output folder.
        """
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END:
            return
        current: Any = getattr(self, "push_in_progress", None)  # HF makes it with the first push
        running = current is not None and not current.is_done()
        if running and not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        places = {HubStrategy.CHECKPOINT: "last-checkpoint", HubStrategy.ALL_CHECKPOINTS: Path(checkpoint_folder).name}
        place = places.get(self.args.hub_strategy)
        # The trainer may delete the checkpoint (save_total_limit) before its turn comes.
        kept = _kept(Path(checkpoint_folder), whole=place is not None)
        message = f"Training in progress, step {self.state.global_step}"
        job = self._hub.run_as_future(self._push_kept, kept, message, place)
        job.add_done_callback(partial(_after_push, kept, message))
        if running:
            current.jobs.append(job)
        else:
            self.push_in_progress = PushInProgress([job])

    def _push_kept(self, folder: Path, message: str, place: str | None) -> None:
        """Push the model in a folder and, where a place in the repository is given, the whole folder there."""
        self._push(str(folder), message, blocking=True, as_saved=True)
        if place is not None:
            self._hub.upload_folder(
                repo_id=str(self.hub_model_id),
                folder_path=folder,
                path_in_repo=place,
                commit_message=f"{message}, checkpoint",
                revision=self.args.hub_revision,
            )

    @cached_property
    def _hub(self) -> HfApi:
        """One for all pushes in the background: it makes them one after another, in their order."""
        return HfApi(token=self.args.hub_token)

    def _push(
        self,
        folder: str,
        message: str,
        blocking: bool,
        token: str | None = None,
        revision: str | None = None,
        as_saved: bool = False,  # checkpoints on the way: this trainer goes on from them, and nobody else
    ) -> Any:
        push = partial(
            push_folder,
            folder,
            self.hub_model_id,
            private=bool(self.args.hub_private_repo),
            token=token if token is not None else self.args.hub_token,
            revision=revision if revision is not None else self.args.hub_revision,
            commit_message=message,
            as_saved=as_saved,
        )
        return push() if blocking else self._hub.run_as_future(push)


def _kept(checkpoint: Path, whole: bool) -> Path:
    """A folder with the files of a checkpoint, or with those of its model, which stays when the checkpoint goes.

    Files of a checkpoint never change: links to them take no space, on disks that know links.
    """
    names = [str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()]
    folder = Path(tempfile.mkdtemp(dir=checkpoint.parent, prefix=".push-"))
    for name in set(names if whole else intended_files(checkpoint)) - {TRAINING_ARGS_NAME}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(checkpoint / name, folder / name)
    return folder


def _after_push(folder: Path, message: str, job: Future[None]) -> None:
    """Tidy up, and tell of a failure, which nobody would hear of otherwise."""
    shutil.rmtree(folder, ignore_errors=True)
    error = None if job.cancelled() else job.exception()
    if error is not None:
        logger.warning("The push %r has failed, and training goes on: %s", message, error)
