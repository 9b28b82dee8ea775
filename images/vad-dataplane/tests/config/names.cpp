// Prints the names that the data plane uses, for contract_names.py.
#include <iostream>

#include "config/config.hpp"
#include "control/drop_reason.hpp"

int main() {
    for (const auto name : voice::config::contract_variables()) {
        std::cout << "contract " << name << '\n';
    }
    for (const auto name : voice::config::own_variables()) {
        std::cout << "own " << name << '\n';
    }
    for (const auto name : voice::control::kDropReasonNames) {
        std::cout << "drop " << name << '\n';
    }
}
