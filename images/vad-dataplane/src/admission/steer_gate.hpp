// Admission with the XDP program.
#pragma once

#include "admission/gate.hpp"
#include "xdp/steer_maps.hpp"

namespace voice::admission {

class SteerGate final : public Requests, public Gate {
public:
    explicit SteerGate(xdp::SteerMaps& steer) noexcept : steer_(steer) {}

    std::size_t wait(std::span<std::uint32_t> ssrcs, std::chrono::milliseconds limit) override;
    bool admit(std::uint32_t ssrc, std::uint32_t slot) override { return steer_.admit(ssrc, slot); }
    bool block(std::uint32_t ssrc) override { return steer_.block(ssrc); }
    bool remove(std::uint32_t ssrc) override { return steer_.remove(ssrc); }

private:
    xdp::SteerMaps& steer_;
};

}  // namespace voice::admission
