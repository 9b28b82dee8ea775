// Runs a VAD module (see abi.h) and swaps it for another one while frames go through.
//
// A module is WebAssembly that sandbox/build.sh made into a shared object with every access, loop and call checked. A
// module that leaves its memory, or runs on for too long, is stopped inside process(): from then on everything is
// speech, which costs bandwidth and loses nobody, until another module is offered.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>

#include "support/count.hpp"
#include "support/prefetch.hpp"
#include "vad/abi.h"

struct vad_module;

namespace voice::vad {

inline constexpr std::size_t kFrameSamples = VAD_FRAME_SAMPLES;
inline constexpr std::size_t kMaxPreRoll = VAD_PRE_ROLL_MAX;
using Frame = std::span<const std::int16_t, kFrameSamples>;

struct Decision {
    bool speech = true;                // send this frame
    bool onset = false;                // speech starts here
    std::uint8_t pre_roll_frames = 0;  // with onset: send so many frames before this one, those not sent yet
    bool learning = false;             // the module does not know this stream's noise yet
    bool gated = false;                // decided by energy alone
    bool fallback = false;             // nobody decided: the module is stopped, or the stream has no number in it
};

struct LoadError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The code of a module, shared by its instances. Threads that handle modules take turns; a control thread does.
class Module {
public:
    // Throws LoadError, also when anybody but root and this process's user may write to the file or its folder. A new
    // version needs a path of its own: the dynamic linker does not read a path twice.
    static std::shared_ptr<const Module> load(const std::filesystem::path& path);

    ~Module();
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    [[nodiscard]] const vad_module& table() const noexcept { return *table_; }

private:
    Module(void* library, const vad_module* table) noexcept : library_(library), table_(table) {}

    void* library_;
    const vad_module* table_;
};

// A module's memory: the states of its streams. Made by the control thread, used by one thread at a time.
class Instance {
public:
    enum class Fault : std::uint8_t { kNone, kTrap, kRunaway };

    // Throws LoadError when the module does not keep to abi.h.
    explicit Instance(std::shared_ptr<const Module> module);
    ~Instance();
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    [[nodiscard]] Decision process(std::uint32_t stream, Frame frame) noexcept;
    void reset(std::uint32_t stream) noexcept;
    // Has the stream's state fetched.
    void expect(std::uint32_t stream) const noexcept {
        if (stream < streams_) {
            prefetch_to_write(states_ + std::size_t{stream} * state_bytes_, state_bytes_);
        }
    }

    [[nodiscard]] std::uint32_t streams() const noexcept { return streams_; }
    // Why the module was stopped.
    [[nodiscard]] Fault fault() const noexcept { return fault_; }

private:
    void stop(int reason) noexcept;

    std::shared_ptr<const Module> module_;
    std::size_t mapped_bytes_ = 0;
    std::byte* mapped_ = nullptr;
    std::byte* memory_ = nullptr;
    std::byte* frame_ = nullptr;
    std::byte* states_ = nullptr;
    std::size_t state_bytes_ = 0;
    std::uint32_t streams_ = 0;
    Fault fault_ = Fault::kNone;
};

// Written by the polling thread, read by any.
struct Counters {
    Count fallback_frames;  // nobody decided
    Count traps;
    Count runaways;
    Count swaps;
    std::atomic<bool> stopped{false};  // the module was stopped, and no other has been taken since
};

// The VAD of one polling thread.
class Vad {
public:
    explicit Vad(std::unique_ptr<Instance> instance) noexcept : current_(instance.release()) {}
    ~Vad();
    Vad(const Vad&) = delete;
    Vad& operator=(const Vad&) = delete;

    // Polling thread: no lock, no allocation, no system call. An offered module is taken between two frames; all
    // streams then start anew in it, which is to say that it errs to speech until it knows them.
    [[nodiscard]] Decision process(std::uint32_t stream, Frame frame) noexcept;
    void reset(std::uint32_t stream) noexcept;
    // The stream's next frame comes soon.
    void expect(std::uint32_t stream) const noexcept { current_->expect(stream); }

    // Control thread: hands over the next module, in place of one that was not taken yet, and frees the one before.
    void offer(std::unique_ptr<Instance> next) noexcept;
    // Control thread: frees the module that was swapped out; false when there is none (yet).
    bool collect() noexcept;

    // Any thread.
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

private:
    void take_offer() noexcept;
    void count_fault() noexcept;

    Instance* current_;  // the polling thread's
    // Release on the giving side and acquire on the taking side: what was written into an instance is seen by the
    // thread that gets it.
    alignas(64) std::atomic<Instance*> offered_{nullptr};
    std::atomic<Instance*> returned_{nullptr};
    alignas(64) Counters counters_;
};

}  // namespace voice::vad
