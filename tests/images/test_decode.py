"""What becomes of an image file: upright RGB pixels, or a named reason."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from sapiens_batch.errors import SampleError
from sapiens_batch.images.decode import decode
from sapiens_batch.images.decoded import DecodeOptions
from sapiens_batch.records import Array
from sapiens_batch.samples.build import PHOTOS

ORIENTATION_TAG = 0x0112


def encode(image: Image.Image, format_name: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_name, **options)
    return buffer.getvalue()


def gradient() -> Image.Image:
    """A 24 x 16 picture (width x height) with no symmetry."""
    y, x = np.mgrid[0:16, 0:24]
    return Image.fromarray(np.stack([x * 10, y * 15, x + y], axis=-1).astype(np.uint8))


def refused(encoded: bytes, **options: DecodeOptions) -> SampleError:
    with pytest.raises(SampleError) as caught:
        decode(encoded, **options)
    return caught.value


@pytest.mark.parametrize("path", sorted(PHOTOS.glob("*.jpg")), ids=lambda path: path.name)
def test_the_fast_jpeg_path_gives_the_pixels_that_pillow_gives(path: Path) -> None:
    decoded = decode(path.read_bytes())
    assert (decoded.decoder, decoded.format) == ("opencv", "JPEG")
    np.testing.assert_array_equal(decoded.pixels, np.array(Image.open(path).convert("RGB")))
    assert decoded.pixels.flags.c_contiguous


# How a camera stores an upright picture so that the tag turns it back, in numpy's terms.
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_name", ["PNG", "WEBP", "TIFF"])
def test_all_eight_orientations_give_the_same_upright_pixels(
    format_name: str, orientation: int
) -> None:
    upright = np.array(gradient())
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    options = {"lossless": True, "exact": True} if format_name == "WEBP" else {}
    decoded = decode(encode(stored, format_name, exif=exif, **options))
    np.testing.assert_array_equal(decoded.pixels, upright)
    assert decoded.orientation == orientation


@pytest.mark.parametrize("orientation", range(1, 9))
def test_jpegs_are_turned_upright_too(orientation: int) -> None:
    upright = np.array(gradient())
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    decoded = decode(encode(stored, "JPEG", exif=exif, quality=100, subsampling=0))
    assert decoded.pixels.shape == (16, 24, 3)
    assert np.abs(decoded.pixels.astype(int) - upright).max() <= 4
    assert decoded.orientation == orientation


def test_an_illegal_orientation_counts_as_upright() -> None:
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 9
    assert decode(encode(gradient(), "JPEG", exif=exif)).orientation == 1


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("1", 1, (255, 255, 255)),
        ("L", 77, (77, 77, 77)),
        ("LA", (0, 0), (255, 255, 255)),
        ("RGB", (1, 2, 3), (1, 2, 3)),
        ("RGBA", (200, 0, 0, 255), (200, 0, 0)),
        ("RGBA", (200, 0, 0, 0), (255, 255, 255)),
        ("RGBA", (0, 0, 0, 51), (204, 204, 204)),
        ("I;16", 257 * 99, (99, 99, 99)),
        ("I;16", 65_535, (255, 255, 255)),
    ],
)
def test_every_png_mode_becomes_rgb_over_white(
    mode: str, colour: int | tuple[int, ...], expected: tuple[int, int, int]
) -> None:
    decoded = decode(encode(Image.new(mode, (5, 4), colour), "PNG"))
    assert decoded.pixels.shape == (4, 5, 3)
    assert decoded.pixels.dtype == np.uint8
    assert (decoded.pixels == expected).all()


def test_sixteen_bit_grey_keeps_its_ramp() -> None:
    ramp = np.linspace(0, 65_535, 256).astype(np.uint16)[None]
    decoded = decode(encode(Image.fromarray(ramp), "PNG"))
    np.testing.assert_array_equal(decoded.pixels[0, :, 0], np.arange(256))


def test_transparent_palette_entries_become_white() -> None:
    image = Image.new("P", (3, 3), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    assert (decode(encode(image, "PNG")).pixels == (10, 20, 30)).all()
    assert (decode(encode(image, "PNG", transparency=1)).pixels == 255).all()


def test_cmyk_jpegs_have_their_colours() -> None:
    decoded = decode(encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=100))
    assert decoded.decoder == "pillow"
    assert np.abs(decoded.pixels.astype(int) - (255, 0, 0)).max() <= 3


@pytest.mark.parametrize("format_name", ["PNG", "WEBP", "GIF"])
def test_alpha_is_laid_over_the_background_of_the_job(format_name: str) -> None:
    encoded = encode(Image.new("RGBA", (4, 4), (200, 0, 0, 0)), format_name)
    options = DecodeOptions(background=(10, 20, 30))
    assert (decode(encoded, options=options).pixels == (10, 20, 30)).all()


def test_the_first_frame_of_an_animation_counts_and_is_flagged() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime")]
    for name in ("GIF", "WEBP", "PNG"):
        options = {"lossless": True} if name == "WEBP" else {}
        encoded = encode(frames[0], name, save_all=True, append_images=frames[1:], **options)
        decoded = decode(encoded)
        assert (decoded.pixels == (255, 0, 0)).all()
        assert decoded.animated
        assert not decode(encode(frames[0], name)).animated


def test_an_image_in_another_colour_space_becomes_srgb(shared: Path) -> None:
    wide = decode((shared / "torture" / "jpeg_icc_display_p3.jpg").read_bytes())
    same = decode((shared / "torture" / "jpeg_exif_orient_3.jpg").read_bytes())
    assert wide.colour_profile == "converted"
    np.testing.assert_allclose(cv2.mean(wide.pixels)[:3], cv2.mean(same.pixels)[:3], atol=0.5)


def test_an_srgb_profile_changes_nothing() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    tagged = decode(encode(gradient(), "PNG", icc_profile=profile))
    np.testing.assert_array_equal(tagged.pixels, np.array(gradient()))
    assert tagged.colour_profile == "srgb"
    assert decode(encode(gradient(), "PNG")).colour_profile == "none"


@pytest.mark.parametrize("profile", [bytes(128), b"no profile", bytes(1_000_000)])
def test_a_damaged_profile_is_ignored_and_said_so(profile: bytes) -> None:
    decoded = decode(encode(gradient(), "PNG", icc_profile=profile))
    np.testing.assert_array_equal(decoded.pixels, np.array(gradient()))
    assert decoded.colour_profile == "ignored"


def test_a_profile_of_another_colour_space_than_the_pixels_is_ignored() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    assert decode(encode(gradient(), "PNG", icc_profile=profile)).colour_profile == "ignored"


def test_heif_is_decoded_where_its_extra_is_installed() -> None:
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra `heif` is not installed")
    buffer = io.BytesIO()
    picture = np.full((64, 48, 3), (200, 40, 90), np.uint8)
    pillow_heif.from_pillow(Image.fromarray(picture)).save(buffer, quality=95)
    decoded = decode(buffer.getvalue())
    assert (decoded.format, decoded.decoder) == ("HEIF", "pillow-heif")
    assert np.abs(decoded.pixels.astype(int) - picture).max() <= 4


def test_floating_point_pixels_are_refused_because_their_range_is_unknown() -> None:
    error = refused(encode(Image.new("F", (4, 4), 0.5), "TIFF"))
    assert error.reason == "decode.unsupported"


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "decode.empty"),
        (b"\xff", "decode.unknown_format"),
        (b"<!DOCTYPE html><html></html>", "decode.unknown_format"),
        (bytes(4096), "decode.unknown_format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "decode.unsupported"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "decode.corrupt"),
        (b"\x00\x00\x00\x18ftypisom\x00\x00\x00\x00isommp41", "decode.unsupported"),
        (b"\xff\x0a" + bytes(30), "decode.unsupported"),
        (b"\xff\xd8\xff\xe0", "decode.truncated"),
    ],
)
def test_what_is_not_an_image_is_refused_by_name(encoded: bytes, reason: str) -> None:
    error = refused(encoded)
    assert error.reason == reason
    assert error.message


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.3, 0.5, 0.6, 0.9, 0.99])
def test_a_jpeg_that_is_cut_short_is_never_filled_up(fraction: float, progressive: bool) -> None:
    whole = encode(Image.open(PHOTOS / "cat.jpg"), "JPEG", progressive=progressive)
    assert refused(whole[: int(len(whole) * fraction)]).reason == "decode.truncated"


@pytest.mark.parametrize("fraction", [0.5, 0.9])
@pytest.mark.parametrize("format_name", ["PNG", "WEBP", "AVIF", "BMP", "TIFF"])
def test_other_formats_that_are_cut_short_are_refused(format_name: str, fraction: float) -> None:
    whole = encode(Image.open(PHOTOS / "cat.jpg"), format_name)
    error = refused(whole[: int(len(whole) * fraction)])
    assert error.reason in {"decode.truncated", "decode.corrupt"}


def test_a_png_with_a_wrong_checksum_is_corrupt() -> None:
    whole = bytearray(encode(Image.open(PHOTOS / "cat.jpg"), "PNG"))
    whole[len(whole) // 2] ^= 1
    assert refused(bytes(whole)).reason == "decode.corrupt"


def png_header(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checked = header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + checked


def test_a_bomb_is_refused_by_its_header() -> None:
    idat = zlib.compress(bytes(1000))
    chunk = b"IDAT" + idat
    data = struct.pack(">I", len(idat)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    error = refused(png_header(60_000, 60_000) + data)
    assert error.reason == "decode.too_large"
    assert "60000 x 60000" in error.message


def test_limits_are_the_callers_to_set() -> None:
    encoded = encode(gradient(), "PNG")
    decode(encoded, options=DecodeOptions(max_pixels=24 * 16, max_side=24))
    assert refused(encoded, options=DecodeOptions(max_pixels=383)).reason == "decode.too_large"
    assert refused(encoded, options=DecodeOptions(max_side=23)).reason == "decode.too_large"


def test_the_content_decides_the_decoder_and_the_pixels() -> None:
    encoded = (PHOTOS / "cat.jpg").read_bytes()
    first, second = decode(encoded), decode(encoded)
    assert first.decoder == second.decoder
    np.testing.assert_array_equal(first.pixels, second.pixels)


SEEDS = tuple(
    encode(gradient(), name) for name in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM", "WEBP")
)


@given(st.sampled_from(SEEDS), st.data())
@settings(max_examples=80, deadline=None)
def test_damaged_bytes_are_decoded_or_refused_and_nothing_else(
    seed: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(seed) - 1))] = data.draw(st.integers(0, 255))
    keep = data.draw(st.integers(0, len(seed)))
    try:
        decoded = decode(bytes(damaged[:keep]), options=DecodeOptions(max_pixels=1_000_000))
    except SampleError:
        return
    assert decoded.pixels.ndim == 3


def torture_cases() -> list[dict[str, object]]:
    manifest = Path(__file__).resolve().parents[3] / "shared" / "torture" / "manifest.json"
    return json.loads(manifest.read_text())["files"] if manifest.is_file() else []


@pytest.mark.parametrize("case", torture_cases(), ids=lambda case: case["file"])
def test_difficult_files_get_the_outcome_that_their_manifest_asks_for(
    case: dict[str, object], shared: Path
) -> None:
    encoded = (shared / "torture" / str(case["file"])).read_bytes()
    try:
        decoded = decode(encoded)
    except SampleError as error:
        assert case["expect"] != "decode", error.message
        return
    pixels = decoded.pixels
    assert case["expect"] != "reject"
    converted = decoded.colour_profile == "converted"
    assert mean_matches(pixels, case, "ref_mean_rgb_icc_to_srgb" if converted else "ref_mean_rgb")
    if case.get("expected_size"):
        assert [pixels.shape[1], pixels.shape[0]] == case["expected_size"]


def mean_matches(pixels: Array, case: dict[str, object], reference: str) -> bool:
    expected = case.get(reference)
    return expected is None or np.abs(np.array(cv2.mean(pixels)[:3]) - expected).max() < 0.6
