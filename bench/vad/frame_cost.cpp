// Cost of a frame: `frame_cost MODULE.so AUDIO.s16` alternates between the module in its host and the same source built
// natively, with many interleaved streams as in the data plane. Prints JSON.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "vad/host.hpp"

extern "C" {
std::uintptr_t vad_frame_offset();
void vad_init();
std::uint32_t vad_process(std::uint32_t stream);
}

namespace {

constexpr std::uint32_t kStreams = 2000;

// CPU time of this thread: other processes count only through their effect on the caches.
double now_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Every stream starts at a different position of the same audio.
template <typename Process>
double round_ns(const std::vector<std::int16_t>& audio, std::size_t at, Process process) {
    const std::size_t frames = audio.size() / voice::vad::kFrameSamples;
    const double start = now_ns();
    for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
        const std::size_t frame = (at + stream * 37) % frames;
        process(stream, voice::vad::Frame(audio.data() + frame * voice::vad::kFrameSamples, voice::vad::kFrameSamples));
    }
    return (now_ns() - start) / kStreams;
}

void print(const char* name, const std::vector<double>& rounds) {
    std::printf("\"%s\": [", name);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        std::printf("%s%.0f", i == 0 ? "" : ", ", rounds[i]);
    }
    std::printf("], ");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    std::ifstream file(argv[2], std::ios::binary);
    std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<std::int16_t> audio(bytes.size() / 2);
    std::copy_n(bytes.data(), audio.size() * 2, reinterpret_cast<char*>(audio.data()));

    voice::vad::Instance wasm(voice::vad::Module::load(argv[1]));
    vad_init();
    auto* native_frame = reinterpret_cast<std::int16_t*>(vad_frame_offset());
    std::uint64_t gated = 0;
    std::uint64_t frames = 0;
    std::uint64_t different = 0;
    std::vector<bool> said(kStreams);
    const auto run_wasm = [&](std::uint32_t stream, voice::vad::Frame frame) {
        const auto decision = wasm.process(stream, frame);
        gated += decision.gated ? 1 : 0;
        said[stream] = decision.speech;
        ++frames;
    };
    const auto run_native = [&](std::uint32_t stream, voice::vad::Frame frame) {
        std::ranges::copy(frame, native_frame);
        different += ((vad_process(stream) & VAD_SPEECH) != 0) != said[stream] ? 1 : 0;
    };
    std::vector<double> wasm_ns;
    std::vector<double> native_ns;
    for (std::size_t at = 0; at < 1000; at += 2) {
        // Two frames: the spectrum is computed for every second one.
        const double one = round_ns(audio, at, run_wasm);
        const double other = round_ns(audio, at, run_native);
        const double one_more = round_ns(audio, at + 1, run_wasm);
        const double other_more = round_ns(audio, at + 1, run_native);
        if (at >= 50) {  // the streams have learned their noise
            wasm_ns.push_back((one + one_more) / 2);
            native_ns.push_back((other + other_more) / 2);
        }
    }
    std::putchar('{');
    print("wasm_ns", wasm_ns);
    print("native_ns", native_ns);
    std::printf("\"gated\": %.3f, \"frames\": %llu, \"different\": %llu}\n",
                static_cast<double>(gated) / static_cast<double>(frames), static_cast<unsigned long long>(frames),
                static_cast<unsigned long long>(different));
    return 0;
}
