"""`python -m tests.adversarial.fuzz NAME CORPUS` searches with libFuzzer for inputs that a parser does not expect.

It stores inputs with new coverage in the folder CORPUS. Options of libFuzzer may follow.
"""

import sys

import atheris

with atheris.instrument_imports(include=["voice_gateway", "voice_runtime"]):
    from tests.adversarial.parsers import CORPUS, PARSERS

if __name__ == "__main__":
    _, name, corpus, *options = sys.argv
    atheris.Setup([sys.argv[0], corpus, str(CORPUS / name), *options], PARSERS[name].parse_with)
    atheris.Fuzz()
