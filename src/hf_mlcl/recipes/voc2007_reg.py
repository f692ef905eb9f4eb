"""PASCAL VOC 2007: photographs, 20 kinds of objects. ResNet-50 with the study's settings.

accelerate launch recipes/voc2007_reg.py                       # reg; the official files are downloaded
accelerate launch recipes/voc2007_reg.py --size small          # a fifth of the training images
accelerate launch recipes/voc2007_reg.py --loss zlpr           # with the settings for losses on logits
accelerate launch recipes/voc2007_reg.py --pretrained False    # from random weights
"""

from hf_mlcl.experiments import Recipe, run_recipe

RECIPE = Recipe(
    corpus="voc2007",
    loss="reg",
    settings={
        "backbone": "timm/resnet50.tv_in1k",  # torchvision's weights; stronger: timm/resnet50.a1_in1k
        "image_size": 224,
        "learning_rate": 0.003,
        "global_batch_size": 64,
        "optim": "sgd",
        "optim_args": "momentum=0.9",
        "weight_decay": 1e-4,  # ours: the paper states none, and the 0.01 of texts would wipe out weights under SGD
        "per_device_eval_batch_size": 128,
        "dataloader_num_workers": 8,  # they decode and augment
    },
    contrastive={
        "num_train_epochs": 10,
        "alpha": 0.0,
        "temperature": 0.1,
        "save_steps": 0.05,  # a share of all steps
        "linear_learning_rates": [1.0, 0.1],
        "linear_weight_decays": [1e-1, 1e-2, 1e-4],
        "linear_batch_size": 64,
        "linear_optimizer": "adamw",
        "augmented_passes": 1,  # as the authors' code; more, taken in turn by the heads' epochs, are ours
    },
    logit={
        "num_train_epochs": (10, 5, 20),
        "eval_strategy": "epoch",  # the checkpoint with the best validation micro-F1 is kept
    },
)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__)  # train, linear evaluation (losses on logits: directly), save, sum up
