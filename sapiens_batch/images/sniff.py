"""Which image format some bytes are, from their signature alone.

An allow-list: only formats named here are ever handed to a decoder, so that no plugin that starts
other programs or parses rare formats sees untrusted bytes. Reading headers is left to `decode`.
"""

from __future__ import annotations

from sapiens_batch.errors import SampleError

_SIGNATURES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"II+\x00": "TIFF",
    b"MM\x00+": "TIFF",
    b"P1": "PPM",
    b"P2": "PPM",
    b"P3": "PPM",
    b"P4": "PPM",
    b"P5": "PPM",
    b"P6": "PPM",
    b"\xff\x0a": "JPEG XL",
    b"\x00\x00\x00\x0cJXL \r\n\x87\n": "JPEG XL",
    b"\x00\x00\x00\x0cjP  \r\n\x87\n": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"\x00\x00\x01\x00": "ICO",
    b"qoif": "QOI",
    b"8BPS": "PSD",
    b"%!PS": "PostScript",
    b"%PDF": "PDF",
}

_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")

DECODABLE = frozenset({"JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM", "WEBP", "AVIF", "HEIF"})
"""Formats that are decoded; the names are Pillow's. HEIF needs the extra `heif`."""


def sniff_format(encoded: bytes) -> str:
    """Name the format of an image file.

    Args:
        encoded: The file's bytes, at least the first 64.

    Returns:
        One of `DECODABLE`.

    Raises:
        SampleError: `decode.unknown_format` where the bytes are no known image,
            `decode.unsupported` where they are, but of a format that is not decoded.
    """
    name = _riff_or_box(encoded[:64]) or next(
        (name for mark, name in _SIGNATURES.items() if encoded.startswith(mark)), None
    )
    if name is None:
        raise SampleError(
            "decode.unknown_format",
            f"{len(encoded)} bytes that begin with {encoded[:16]!r} are no known image format; "
            "look whether an error page or another file was saved in the image's place",
        )
    if name not in DECODABLE:
        raise SampleError(
            "decode.unsupported",
            f"{name} is not decoded; convert the image to one of {', '.join(sorted(DECODABLE))}",
        )
    return name


def _riff_or_box(head: bytes) -> str | None:
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] != b"ftyp":
        return None
    # The major brand may be the generic `mif1`; then the compatible brands tell.
    brands = head[8:]
    if b"avif" in brands or b"avis" in brands:
        return "AVIF"
    return "HEIF" if any(brand in brands for brand in _HEIF_BRANDS) else "another ISO media file"
