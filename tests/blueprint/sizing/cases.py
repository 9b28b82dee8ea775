"""Catalogue rows and loads shared by the sizing tests."""

from voice_blueprint import catalog
from voice_blueprint.file.model.serving import Load

VOXTRAL = catalog.models()["voxtral-small-24b"]
WHISPER = catalog.models()["whisper-large-v3"]
TURBO = catalog.models()["whisper-large-v3-turbo"]
QWEN = catalog.models()["qwen3-8b"]
QWEN_7B = catalog.models()["qwen2.5-7b-instruct"]
TTS = catalog.models()["voxtral-4b-tts"]
REALTIME = catalog.models()["voxtral-mini-4b-realtime"]

A100 = catalog.gpus()["A100-80"]
H100 = catalog.gpus()["H100"]
H200 = catalog.gpus()["H200"]
A10 = catalog.gpus()["A10"]
A4500 = catalog.gpus()["A4500"]

NC24 = catalog.vm_sizes()["Standard_NC24ads_A100_v4"]
NC48 = catalog.vm_sizes()["Standard_NC48ads_A100_v4"]
NC96 = catalog.vm_sizes()["Standard_NC96ads_A100_v4"]
NC80 = catalog.vm_sizes()["Standard_NC80adis_H100_v5"]
ND_H200 = catalog.vm_sizes()["Standard_ND96isr_H200_v5"]

SHORT_SESSIONS = Load(sessions=500, session_tokens=1500, context_tokens=32768)
FULL_CONTEXT_SESSIONS = Load(sessions=500, session_tokens=32768, context_tokens=32768)
CHAT_SESSIONS = Load(sessions=500, session_tokens=1500, context_tokens=16384)
CLIP = Load(sessions=32, session_tokens=448, context_tokens=448)
