# mypy: disable-error-code="import-not-found"
"""Creates tracks with recordings and noise, deterministically, from Debian packages and fixed seeds.

Real speech comes from `asterisk-core-sounds-*-g722` (CC-BY-SA 3.0); the network was trained only on Allison Smith's
recordings. Hold music comes from `asterisk-moh-opsound-g722`, and synthetic speech from espeak-ng. A hash of a
recording's name permanently assigns the recording to one of three sets. For espeak-ng, the hash is that of the voice,
so neither held-out voices nor their sentences were used for training.
"""

import hashlib
import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Samples: TypeAlias = npt.NDArray[np.float64]
FrameFlags: TypeAlias = npt.NDArray[np.bool_]

SAMPLE_RATE = 16_000
SAMPLES_PER_FRAME = 320
ASTERISK_FOLDER = Path("/usr/share/asterisk")
SPEAKERS = {
    "real": "en_US_f_Allison",
    "June": "fr_CA_f_June",
    "Carlo": "it_IT_m_Carlo",
    "Ivrvoice": "ru_RU_f_IvrvoiceRU",
}
MAX_OTHER_RECORDINGS = 60
"""Maximum number of recordings by each speaker who is not in the training data."""
NO_SPEECH_WORDS = ("beep", "tone", "silence", "confbridge-join", "confbridge-leave", "vm-rec")
AMERICAN_SPEAKERS = (
    *(f"f{n}" for n in range(1, 6)),
    *(f"m{n}" for n in range(1, 9)),
    "steph",
    "anika",
    "linda",
    "adam",
    "max",
)
BRITISH_SPEAKERS = (
    "Alicia", "Andrea", "Annie", "Lee", "Michael", "Hugo", "Gene", "Denis", "belinda", "robert", "travis", "victor",
)  # fmt: skip
VOICES = (*(f"en-us+{name}" for name in AMERICAN_SPEAKERS), *(f"en-gb+{name}" for name in BRITISH_SPEAKERS))
TRAINING_TEXTS = (
    "Good morning, I would like to move my appointment from Thursday to the week after.",
    "The parcel was left with a neighbour. Nobody has told me which one.",
    "Could you read the last four digits again, please? I have seven, three, nine, one.",
    "It stopped working yesterday evening, shortly after six, and the red light keeps blinking.",
    "Yes. No, the other one. The invoice from September, for the kitchen.",
    "We are five adults and two children, and we arrive late on Friday night.",
    "Thanks for waiting. What's the quickest way to the station from here?",
    "She sells fresh fish, fruit and cheese; he fixes shoes, watches and furniture.",
)
HELD_OUT_TEXTS = (
    "Hello, this is about the booking for next weekend. Is the room still free?",
    "My telephone number has changed. It's four, zero, six, double two, eight.",
    "I'm afraid I can't find the contract. Where did you say it was?",
    "Put me through to the workshop, please. They promised to ring before noon.",
    "No problem at all. We'll try again tomorrow, around a quarter to eleven.",
    "The heating makes a strange noise whenever somebody opens the tap upstairs.",
    "Six thick thistle sticks, that is what the sign above the shop says.",
    "Okay. And how much would it be without the insurance?",
)
NOISE_KINDS = ("white", "pink", "babble", "click")
SNRS_DB = (20, 10, 5, 0)
CONDITIONS = (("none", 60), *((noise, snr) for noise in NOISE_KINDS for snr in SNRS_DB))
"""Each noise with each signal-to-noise ratio in dB, and speech with only a faint hiss."""

MAX_DB_BELOW_PEAK = 30
"""Maximum difference between the level of a speech frame and the 95th percentile of the clean recording."""
MAX_GAP_FRAMES = 5
"""Maximum pause that is part of the surrounding speech, 100 ms."""
TALKER_COUNT = 6


@dataclass(frozen=True)
class Track:
    """Recordings with pauses between them, mixed with one noise."""

    name: str
    samples: npt.NDArray[np.int16]
    speech: FrameFlags
    """Whether each frame contains speech, derived from the clean signal."""


def assign_split(name: str) -> str:
    """Return the set that contains a recording, as determined by a hash of the recording's name.

    Half of all recordings are for training and a tenth for the selection of thresholds. The rest are held out.
    """
    bucket = hashlib.sha256(name.encode()).digest()[0] % 10
    return "learn" if bucket < 5 else "choose" if bucket == 5 else "held-out"  # noqa: PLR2004


def _decode_audio(arguments: list[str], stdin: bytes | None = None) -> Samples:
    """Decode audio to 16 kHz mono with ffmpeg."""
    command = ["ffmpeg", "-v", "error", *arguments, "-ar", str(SAMPLE_RATE), "-ac", "1", "-f", "s16le", "-"]
    raw = subprocess.run(command, input=stdin, capture_output=True, check=True).stdout  # noqa: S603
    return np.frombuffer(raw, np.int16).astype(float)


def _synthesize_speech(voice: str, text: str) -> Samples:
    command = ["espeak-ng", "-v", voice, "-s", str(130 + 7 * (len(voice + text) % 9)), "--stdout", text]
    wave = subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603
    return _decode_audio(["-f", "wav", "-i", "-"], wave)


def find_recordings(kind: str, part: str) -> list[Path]:
    """Return the files of a speaker in a set that contain speech. One file of Debian's Russian package is empty."""
    files = sorted((ASTERISK_FOLDER / "sounds" / SPEAKERS[kind]).glob("*.g722"))
    paths = [
        one
        for one in files
        if assign_split(one.name) == part
        and one.stat().st_size
        and not any(word in one.name for word in NO_SPEECH_WORDS)
    ]
    return paths if kind == "real" else paths[:MAX_OTHER_RECORDINGS]


def load_recordings(kind: str, part: str, cache: Path) -> list[Samples]:
    """Return the recordings in a set, which are cached after decoding. ``kind`` is a speaker or "espeak"."""
    cached = cache / f"{kind}-{part}.npz"
    if not cached.exists():
        if kind in SPEAKERS:
            samples_list = [_decode_audio(["-f", "g722", "-i", str(one)]) for one in find_recordings(kind, part)]
        else:
            texts = HELD_OUT_TEXTS if part == "held-out" else TRAINING_TEXTS
            samples_list = [
                _synthesize_speech(voice, text) for voice in VOICES if assign_split(voice) == part for text in texts
            ]
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(cached, *[one.astype(np.int16) for one in samples_list])
    with np.load(cached) as archive:
        return [archive[name].astype(float) for name in archive.files]


def label_speech(clean: Samples) -> FrameFlags:
    """Return a flag for each frame of a clean recording. The flag is true for speech."""
    frames = clean[: len(clean) // SAMPLES_PER_FRAME * SAMPLES_PER_FRAME].reshape(-1, SAMPLES_PER_FRAME)
    level = 10 * np.log10(frames.var(axis=1) + 1)
    speech: FrameFlags = level > np.percentile(level, 95) - MAX_DB_BELOW_PEAK
    edges = np.flatnonzero(np.diff(speech.astype(int)))
    for before, after in itertools.pairwise(edges):
        if speech[before] and after - before <= MAX_GAP_FRAMES:
            speech[before + 1 : after + 1] = True
    return speech


def _join_recordings(sources: list[Samples], random: np.random.Generator) -> tuple[Samples, FrameFlags]:
    """Join recordings in random order at random levels, with pauses of 0.2 to 2 s, and label the speech frames."""
    pieces: list[Samples] = []
    labels: list[FrameFlags] = []
    for index in random.permutation(len(sources)):
        clean = sources[index][: len(sources[index]) // SAMPLES_PER_FRAME * SAMPLES_PER_FRAME]
        speech = label_speech(clean)
        pause = int(random.integers(10, 100))
        power = np.sqrt(np.mean(clean.reshape(-1, SAMPLES_PER_FRAME)[speech] ** 2))
        pieces += [clean / power * 10 ** (random.uniform(-3, 3) / 20), np.zeros(pause * SAMPLES_PER_FRAME)]
        labels += [speech, np.zeros(pause, bool)]
    return np.concatenate(pieces), np.concatenate(labels)


def generate_noise(kind: str, count: int, voices: list[Samples], random: np.random.Generator) -> Samples:
    """Generate ``count`` samples of a noise with a mean power of 1."""
    if kind == "babble":
        sound = np.zeros(count)
        for _ in range(TALKER_COUNT):
            babble = np.concatenate([voices[i] / (voices[i].std() + 1) for i in random.permutation(len(voices))])
            sound += np.roll(np.resize(babble, count), int(random.integers(count)))
    elif kind == "click":
        sound = np.zeros(count + SAMPLE_RATE)
        for at in random.integers(0, count, count * 4 // SAMPLE_RATE):  # four per second
            length = int(random.integers(32, 320))
            burst = random.standard_normal(length) * np.exp(-np.arange(length) * 5 / length)
            sound[at : at + length] += burst * random.uniform(0.3, 1)
        sound = sound[:count]
    else:
        spectrum = np.fft.rfft(random.standard_normal(count))
        if kind == "pink":
            spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), count * 50 // SAMPLE_RATE))
        sound = np.fft.irfft(spectrum, count)
    return np.asarray(sound / np.sqrt(np.mean(sound**2)))


def _generate_gain_steps(count: int, random: np.random.Generator) -> Samples:
    """Generate a gain that changes abruptly every 6 to 20 s, between 0 and -24 dB."""
    gain = np.ones(count)
    at = 0
    while at < count:
        until = at + int(random.integers(6, 20)) * SAMPLE_RATE
        gain[at:until] = 10 ** (random.uniform(-24, 0) / 20)
        at = until
    return gain


def generate_tracks(kind: str, part: str, cache: Path, *, steps: bool = False) -> Iterator[Track]:
    """Yield one track per condition. With ``steps``, the level of the noise changes abruptly."""
    sources = load_recordings(kind, part, cache)
    for number, (condition, snr) in enumerate(CONDITIONS):
        seed = hashlib.sha256(f"{kind} {part} {condition} {snr} {int(steps)}".encode()).digest()
        random = np.random.default_rng(int.from_bytes(seed[:8], "little"))
        clean, speech = _join_recordings(sources, random)
        noise_samples = generate_noise("white" if condition == "none" else condition, len(clean), sources, random)
        if steps:
            noise_samples *= _generate_gain_steps(len(clean), random)
        line = random.standard_normal(len(clean)) * 1e-3
        # Telephone levels: -32 to -20 dBFS during speech.
        gain = 32768 * 10 ** ((-26 + 6 * np.cos(number * 2.4)) / 20)
        mixed = gain * (clean + noise_samples * 10 ** (-snr / 20) + line)
        samples = np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)
        yield Track(f"{kind}, {condition}" + ("" if condition == "none" else f" {snr} dB"), samples, speech)


def generate_noise_only_tracks(kind: str, part: str, cache: Path) -> Iterator[Track]:
    """Yield a minute of each noise without speech, with steady and changing levels, from faint to loud."""
    sources = load_recordings(kind, part, cache)
    for condition, steps, level_db in itertools.product(NOISE_KINDS, (False, True), (-66, -50, -34)):
        seed = hashlib.sha256(f"{kind} {part} {condition} {steps} {level_db} mute".encode()).digest()
        random = np.random.default_rng(int.from_bytes(seed[:8], "little"))
        noise_samples = generate_noise(condition, 60 * SAMPLE_RATE, sources, random)
        if steps:
            noise_samples *= _generate_gain_steps(len(noise_samples), random)
        samples = np.clip(np.rint(noise_samples * 32768 * 10 ** (level_db / 20)), -32768, 32767).astype(np.int16)
        yield Track(f"{kind}, {condition} alone", samples, np.zeros(len(samples) // SAMPLES_PER_FRAME, bool))


def generate_no_speech_tracks() -> Iterator[Track]:
    """Yield a minute each of noise, telephone tones and hold music without speech.

    The flags ``speech`` of these tracks mark the frames before the sound starts.
    """
    count, mute = 60 * SAMPLE_RATE, 20 * SAMPLE_RATE
    random = np.random.default_rng(1)
    loud_level, quiet_level = (32768 * 10 ** (level / 20) for level in (-20, -50))
    sounds: dict[str, Samples] = {}
    for kind in ("white", "pink", "rumble"):
        spectrum = np.fft.rfft(random.standard_normal(count))
        steps = np.maximum(np.arange(len(spectrum)), count * 50 // SAMPLE_RATE)
        sound = np.fft.irfft(spectrum / steps ** {"white": 0, "pink": 0.5, "rumble": 1}[kind], count)
        sounds[f"{kind}, -50 dBFS"] = quiet_level * sound / sound.std()
    sounds["mute, then a room"] = sounds["rumble, -50 dBFS"] * (np.arange(count) >= mute)
    time = np.arange(count) / SAMPLE_RATE
    for name, (first, second, on, off) in {
        "dial tone": (350, 440, 1, 0), "ringing (US)": (440, 480, 2, 4), "ringing (Europe)": (425, 425, 1, 4),
        "busy (US)": (480, 620, 0.5, 0.5), "busy (Europe)": (425, 425, 0.5, 0.5),
        "congestion (US)": (480, 620, 0.25, 0.25), "congestion (Europe)": (425, 425, 0.25, 0.25),
    }.items():  # fmt: skip
        tones = np.sin(2 * np.pi * first * time) + np.sin(2 * np.pi * second * time)
        sounds[name] = loud_level * tones / tones.std() * (time % (on + off) < on) + random.standard_normal(count) * 3
    for path in sorted((ASTERISK_FOLDER / "moh").glob("*.g722")):
        music = np.resize(_decode_audio(["-f", "g722", "-i", str(path), "-t", "60"]), count)
        sounds[f"music, {path.stem}"] = loud_level * music / music.std()
    for name, sound in sounds.items():
        samples = np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
        yield Track(
            name,
            samples,
            np.arange(count // SAMPLES_PER_FRAME) < (mute // SAMPLES_PER_FRAME if name.startswith("mute") else 0),
        )
