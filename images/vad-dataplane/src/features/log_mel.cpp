#include "features/log_mel.hpp"

#include <algorithm>

namespace voice::features {

struct LogMel::Tables {
    Spectrum spectrum;
    MelFilters filters;
};

const LogMel::Tables& LogMel::shared_tables() noexcept {
    static const Tables tables;
    return tables;
}

LogMel::LogMel() noexcept {
    shared_tables();
}

LogMel::Taken LogMel::push(std::span<const std::int16_t> samples, Frames out) noexcept {
    Taken taken{0, 0};
    while (true) {
        const std::size_t more = std::min(samples.size() - taken.samples, kWindowSamples - filled_);
        std::copy_n(samples.data() + taken.samples, more, window_.data() + filled_);
        filled_ = static_cast<std::uint16_t>(filled_ + more);
        taken.samples += more;
        empty_ = empty_ && taken.samples == 0;
        if (filled_ < kWindowSamples || taken.frames == out.size()) {
            return taken;
        }
        write_frame(out[taken.frames++]);
    }
}

std::size_t LogMel::owed() const noexcept {
    if (empty_ || filled_ < kReach) {
        return 0;
    }
    // A frame is due for every centre up to the end of the samples; the next centre is one hop after this one.
    return filled_ < kReach + kHopSamples ? 1 : 2;
}

std::size_t LogMel::flush(Frames out) noexcept {
    std::size_t written = 0;
    while (owed() > 0 && written < out.size()) {
        std::fill(window_.begin() + filled_, window_.end(), std::int16_t{0});
        write_frame(out[written++]);
    }
    if (owed() == 0) {
        reset();
    }
    return written;
}

void LogMel::reset() noexcept {
    filled_ = kReach;
    first_ = true;
    empty_ = true;
}

void LogMel::write_frame(std::span<float, kMels> out) noexcept {
    if (first_) {
        window_[0] = 0;  // has weight zero
        std::reverse_copy(window_.begin() + kReach + 1, window_.end(), window_.begin() + 1);
        first_ = false;
    }
    Spectrum::Power power;
    const Tables& tables = shared_tables();
    tables.spectrum.power(window_, power);
    tables.filters.log_mel(power, out);
    std::copy(window_.begin() + kHopSamples, window_.end(), window_.begin());
    // A flushed window was filled with silence after filled_; only the end of the samples counts.
    filled_ = static_cast<std::uint16_t>(filled_ - kHopSamples);
}

}  // namespace voice::features
