"""Started by torchrun: trains on two ranks and pushes the model; the Hub is where HF_ENDPOINT says."""

from __future__ import annotations

import sys

from accelerate import PartialState

from hub.cases import text_case


def main() -> None:
    case = text_case(sys.argv[1])
    case.trainer.args.hub_model_id = "ranks"
    case.trainer.push_to_hub(dataset_tags="tester/colours")
    PartialState().destroy_process_group()


if __name__ == "__main__":
    main()
