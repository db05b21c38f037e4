"""Readers and writers of workflow documents and logs. Units are normalised here; inside everything is SI."""

from wattflow.traces.registry import Conversion, Format, convert, detect, formats, load, save
from wattflow.traces.source import data_folder

__all__ = ["Conversion", "Format", "convert", "data_folder", "detect", "formats", "load", "save"]
