// Runs a module over audio: `decide MODULE.so < AUDIO.s16`. Prints two bytes per frame: bit 0 speech, bit 1 decided by
// energy alone; and the number of earlier frames to send.
#include <cstdio>
#include <vector>

#include "vad/host.hpp"

int main(int argc, char** argv) {
    if (argc != 2) {
        return 2;
    }
    voice::vad::Instance vad(voice::vad::Module::load(argv[1]));
    std::vector<std::int16_t> samples(voice::vad::kFrameSamples);
    while (std::fread(samples.data(), sizeof samples[0], samples.size(), stdin) == samples.size()) {
        const auto decision = vad.process(0, voice::vad::Frame(samples.data(), samples.size()));
        std::putchar((decision.speech ? 1 : 0) | (decision.gated ? 2 : 0));
        std::putchar(decision.pre_roll_frames);
    }
    return 0;
}
