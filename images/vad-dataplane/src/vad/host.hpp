// Runs a VAD module (see abi.h) and replaces it by another one during operation.
//
// A module is WebAssembly that sandbox/build.sh compiles to a shared object in which every access, loop and call is
// checked. A module that accesses invalid memory, or runs for too long, is stopped inside process(): from then on all
// audio counts as speech, which costs bandwidth and loses no words, until another module is offered.
#pragma once

#include <array>
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
    bool onset = false;                // start of speech
    std::uint8_t pre_roll_frames = 0;  // with onset: number of earlier frames to send first, unless they have been sent
    bool learning = false;             // the module has not learned this stream's noise yet
    bool gated = false;                // decided by energy alone
    bool fallback = false;             // no decision: the module is stopped, or the stream has no state in it
};

struct LoadError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The code of a module, shared by its instances. Threads that handle modules take turns; a control thread does.
class Module {
public:
    // Throws LoadError, also if users other than root and this process's may write to the file or its folder. A new
    // version needs a new path: the dynamic linker does not read a path twice.
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

// A stream's state on its way to another instance, valid only for instances of the same module.
struct StreamState {
    static constexpr std::size_t kMaxBytes = 2048;

    const Module* module = nullptr;  // null: there is none
    std::size_t bytes = 0;
    std::array<std::byte, kMaxBytes> state;
};

// A module's memory: the states of its streams. Created by the control thread, used by one thread at a time.
class Instance {
public:
    enum class Fault : std::uint8_t { kNone, kTrap, kRunaway };

    // Throws LoadError if the module violates abi.h.
    explicit Instance(std::shared_ptr<const Module> module);
    ~Instance();
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    [[nodiscard]] Decision process(std::uint32_t stream, Frame frame) noexcept;
    void reset(std::uint32_t stream) noexcept;
    // Copies a stream's state out, or in. A state of another module resets the stream.
    void save(std::uint32_t stream, StreamState& into) const noexcept;
    void restore(std::uint32_t stream, const StreamState& from) noexcept;
    // Prefetches the stream's state.
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
    Count fallback_frames;  // frames without a decision
    Count traps;
    Count runaways;
    Count swaps;
    std::atomic<bool> stopped{false};  // the module was stopped and has not been replaced
};

// The VAD of one polling thread.
class Vad {
public:
    explicit Vad(std::unique_ptr<Instance> instance) noexcept : current_(instance.release()) {}
    ~Vad();
    Vad(const Vad&) = delete;
    Vad& operator=(const Vad&) = delete;

    // Polling thread: no lock, no allocation, no system call. An offered module takes over between two frames; all
    // streams then start again in it, so it tends to decide for speech until it has learned them.
    [[nodiscard]] Decision process(std::uint32_t stream, Frame frame) noexcept;
    void reset(std::uint32_t stream) noexcept;
    // Moves the stream to or from another thread's VAD.
    void give(std::uint32_t stream, StreamState& into) noexcept {
        current_->save(stream, into);
        reset(stream);
    }
    void take(std::uint32_t stream, const StreamState& from) noexcept { current_->restore(stream, from); }
    // Prefetches for the stream's next frame.
    void expect(std::uint32_t stream) const noexcept { current_->expect(stream); }

    // Control thread: offers the next module, in place of one that was not taken yet, and frees the previous one.
    void offer(std::unique_ptr<Instance> next) noexcept;
    // Control thread: frees the replaced module; false if there is none (yet).
    bool collect() noexcept;

    // Any thread.
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

private:
    void take_offer() noexcept;
    void count_fault() noexcept;

    Instance* current_;  // the polling thread's
    // Release when offered and acquire when taken: the receiving thread sees what was written to the instance.
    alignas(64) std::atomic<Instance*> offered_{nullptr};
    std::atomic<Instance*> returned_{nullptr};
    alignas(64) Counters counters_;
};

}  // namespace voice::vad
