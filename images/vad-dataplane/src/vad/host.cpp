#include "vad/host.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "support/huge_pages.hpp"
#include "vad/sandbox/vad_module.h"

namespace voice::vad {

namespace {

// Guest code owns nothing on the host's side, so leaving it by longjmp leaks nothing.
thread_local constinit std::jmp_buf* trap_target = nullptr;

[[noreturn]] void on_trap(int reason) {
    if (trap_target == nullptr) {
        std::abort();
    }
    std::longjmp(*trap_target, reason);
}

// Calls the module; returns 0, or why it was stopped. setjmp does not save the signal mask here, so it makes no system
// call.
template <typename Call>
int guarded(Call&& call) noexcept {
    std::jmp_buf here;
    trap_target = &here;
    const int reason = setjmp(here);
    if (reason == 0) {
        call();
    }
    trap_target = nullptr;
    return reason;
}

[[noreturn]] void refuse(const std::string& why) {
    throw LoadError("VAD module: " + why);
}

// A module runs as code of this process.
void refuse_if_others_write(const std::filesystem::path& path) {
    struct stat about{};
    const bool known = stat(path.c_str(), &about) == 0;
    if (!known || (about.st_uid != 0 && about.st_uid != geteuid()) || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        refuse(path.string() + " can be written by others: it has to be root's, and nobody else's to write (chmod go-w)");
    }
}

}  // namespace

std::shared_ptr<const Module> Module::load(const std::filesystem::path& path) {
    std::error_code missing;
    const auto real = std::filesystem::canonical(path, missing);
    if (missing) {
        refuse(path.string() + ": " + missing.message());
    }
    refuse_if_others_write(real);
    refuse_if_others_write(real.parent_path());
    void* library = dlopen(real.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        refuse(dlerror());
    }
    const auto* table = static_cast<const vad_module*>(dlsym(library, VAD_MODULE_SYMBOL));
    if (table == nullptr || table->layout != VAD_MODULE_LAYOUT) {
        dlclose(library);
        refuse(path.string() + " was not made by this version's sandbox/build.sh");
    }
    table->set_trap_handler(on_trap);
    return std::shared_ptr<const Module>(new Module(library, table));
}

Module::~Module() {
    dlclose(library_);
}

Instance::Instance(std::shared_ptr<const Module> module) : module_(std::move(module)) {
    const vad_module& table = module_->table();
    mapped_bytes_ = table.instance_bytes;
    mapped_ = static_cast<std::byte*>(map_huge(mapped_bytes_));
    if (mapped_ == nullptr) {
        refuse("no memory for " + std::to_string(mapped_bytes_) + " bytes");
    }
    memory_ = mapped_ + table.memory_offset;
    std::uint32_t version = 0;
    std::uint32_t offset = 0;
    std::uint32_t states = 0;
    const int reason = guarded([&] {
        table.instantiate(mapped_);
        version = table.abi_version(mapped_);
        if (version != VAD_ABI_VERSION) {
            return;
        }
        streams_ = table.stream_count(mapped_);
        offset = table.frame_offset(mapped_);
        states = table.state_offset(mapped_);
        state_bytes_ = table.state_bytes(mapped_);
        table.init(mapped_);
    });
    std::string wrong;
    if (reason != 0) {
        wrong = "stopped while it started, reason " + std::to_string(reason);
    } else if (version != VAD_ABI_VERSION) {
        wrong = "offers interface " + std::to_string(version) + ", needed is " + std::to_string(VAD_ABI_VERSION);
    } else if (streams_ == 0) {
        wrong = "has no streams";
    } else if (offset % 4 != 0 || offset > table.memory_bytes || table.memory_bytes - offset < Frame::extent * 2) {
        wrong = "its frame lies outside of its memory, at " + std::to_string(offset);
    } else if (states > table.memory_bytes || (table.memory_bytes - states) / streams_ < state_bytes_) {
        wrong = "its streams' states lie outside of its memory, at " + std::to_string(states);
    }
    if (!wrong.empty()) {
        unmap_huge(mapped_, mapped_bytes_);
        refuse(wrong);
    }
    frame_ = memory_ + offset;
    states_ = memory_ + states;
}

Instance::~Instance() {
    unmap_huge(mapped_, mapped_bytes_);
}

Decision Instance::process(std::uint32_t stream, Frame frame) noexcept {
    if (fault_ != Fault::kNone || stream >= streams_) {
        return {.fallback = true};
    }
    std::memcpy(frame_, frame.data(), frame.size_bytes());
    std::uint32_t packed = 0;
    const int reason = guarded([&] { packed = module_->table().process(mapped_, stream); });
    if (reason != 0) {
        stop(reason);
        return {.fallback = true};
    }
    const std::uint32_t pre_roll = packed >> VAD_PRE_ROLL_SHIFT & VAD_PRE_ROLL_MASK;
    const bool onset = (packed & VAD_ONSET) != 0;
    return {
        .speech = (packed & VAD_SPEECH) != 0,
        .onset = onset,
        .pre_roll_frames = static_cast<std::uint8_t>(!onset ? 0 : pre_roll < kMaxPreRoll ? pre_roll : kMaxPreRoll),
        .learning = (packed & VAD_LEARNING) != 0,
        .gated = (packed & VAD_GATED) != 0,
    };
}

void Instance::reset(std::uint32_t stream) noexcept {
    if (fault_ != Fault::kNone || stream >= streams_) {
        return;
    }
    if (const int reason = guarded([&] { module_->table().reset(mapped_, stream); })) {
        stop(reason);
    }
}

void Instance::save(std::uint32_t stream, StreamState& into) const noexcept {
    const bool known = fault_ == Fault::kNone && stream < streams_ && state_bytes_ <= into.state.size();
    into.module = known ? module_.get() : nullptr;
    into.bytes = known ? state_bytes_ : 0;
    std::memcpy(into.state.data(), states_ + (known ? std::size_t{stream} * state_bytes_ : 0), into.bytes);
}

void Instance::restore(std::uint32_t stream, const StreamState& from) noexcept {
    if (fault_ == Fault::kNone && stream < streams_ && from.module == module_.get() && from.bytes == state_bytes_) {
        std::memcpy(states_ + std::size_t{stream} * state_bytes_, from.state.data(), from.bytes);
    } else {
        reset(stream);
    }
}

void Instance::stop(int reason) noexcept {
    fault_ = reason == VAD_TRAP_EXHAUSTION ? Fault::kRunaway : Fault::kTrap;
}

Vad::~Vad() {
    delete current_;
    delete offered_.load(std::memory_order_acquire);
    delete returned_.load(std::memory_order_acquire);
}

Decision Vad::process(std::uint32_t stream, Frame frame) noexcept {
    if (offered_.load(std::memory_order_relaxed) != nullptr) {
        take_offer();
    }
    const bool worked = current_->fault() == Instance::Fault::kNone;
    const Decision decision = current_->process(stream, frame);
    if (worked && decision.fallback) {
        count_fault();
    }
    counters_.fallback_frames += decision.fallback ? 1 : 0;
    return decision;
}

void Vad::reset(std::uint32_t stream) noexcept {
    const bool worked = current_->fault() == Instance::Fault::kNone;
    current_->reset(stream);
    if (worked) {
        count_fault();
    }
}

void Vad::take_offer() noexcept {
    // The control thread has not collected the last one: this thread must not free it, so the offer waits.
    if (returned_.load(std::memory_order_relaxed) != nullptr) {
        return;
    }
    Instance* next = offered_.exchange(nullptr, std::memory_order_acquire);
    returned_.store(current_, std::memory_order_release);
    current_ = next;
    counters_.stopped.store(current_->fault() != Instance::Fault::kNone, std::memory_order_relaxed);
    ++counters_.swaps;
}

void Vad::count_fault() noexcept {
    counters_.traps += current_->fault() == Instance::Fault::kTrap ? 1 : 0;
    counters_.runaways += current_->fault() == Instance::Fault::kRunaway ? 1 : 0;
    counters_.stopped.store(current_->fault() != Instance::Fault::kNone, std::memory_order_relaxed);
}

void Vad::offer(std::unique_ptr<Instance> next) noexcept {
    collect();
    delete offered_.exchange(next.release(), std::memory_order_acq_rel);
}

bool Vad::collect() noexcept {
    Instance* old = returned_.exchange(nullptr, std::memory_order_acq_rel);
    delete old;
    return old != nullptr;
}

}  // namespace voice::vad
