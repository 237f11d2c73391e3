"""A transformers detector that is made in a moment."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session")
def detr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DETR of three layers with random weights and the classes of the published one."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
    from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil

    torch.manual_seed(0)
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 8, 8, 8],
            depths=[1, 1, 1, 1],
            out_features=["stage4"],
        ),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_queries=12,
        id2label={0: "N/A", 1: "person", 2: "bicycle"},
        label2id={"N/A": 0, "person": 1, "bicycle": 2},
    )
    folder = tmp_path_factory.mktemp("detr")
    model = DetrForObjectDetection(config)
    with torch.no_grad():  # so that most queries are persons
        model.class_labels_classifier.bias[1] += 3
    model.save_pretrained(folder)
    DetrImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96}).save_pretrained(folder)
    return folder
