"""Readers and writers of workflow documents and logs. Units are normalised here; inside everything is SI."""

from wattflow.traces.registry import Conversion, Format, convert, detect, formats, load, save

__all__ = ["Conversion", "Format", "convert", "detect", "formats", "load", "save"]
