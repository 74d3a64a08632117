// One step's inputs, copied and checked before anything follows an index in them. Computes nothing.
#pragma once

#include "core/kv_pool.h"

#include <cstdint>
#include <vector>

namespace octavo {

// As the caller gives it: S sequences, N new tokens, G groups, B table columns, R rows whose logits are wanted.
struct StepArrays {
    const int32_t* ids = nullptr;
    const int32_t* positions = nullptr;
    const int32_t* logit_rows = nullptr;
    const int32_t* offsets = nullptr;   // [S + 1]
    const int32_t* lengths = nullptr;   // [S]
    const int32_t* table = nullptr;     // [G, S, B]
    const int64_t* slots = nullptr;     // [G, N]
    int64_t tokens = 0;
    int64_t wanted = 0;
    int64_t sequences = 0;
    int64_t groups = 0;
    int64_t columns = 0;
};

// What a program will read, so that exactly that is checked.
struct StepNeeds {
    int max_tokens = 0;
    int vocabulary = 0;  // 0: ids are not looked at
    struct Reads {
        int group;
        int window;  // 0: all keys
    };
    std::vector<Reads> reads;
    std::vector<int> writes;  // groups
};

class Step {
public:
    // Throws KVFault, RequestFault or std::invalid_argument; afterwards every index is in bounds.
    void take(const StepArrays& from, const StepNeeds& needs, const KVPool& pool);

    int tokens() const { return tokens_; }
    int sequences() const { return static_cast<int>(lengths_.size()); }
    const int32_t* ids() const { return ids_.data(); }
    const int32_t* positions() const { return positions_.data(); }
    const std::vector<int32_t>& logit_rows() const { return logit_rows_; }
    int offset(int sequence) const { return offsets_[static_cast<size_t>(sequence)]; }
    int length(int sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
    const int64_t* slots(int group) const { return slots_.data() + static_cast<int64_t>(group) * tokens_; }
    const int32_t* table(int group, int sequence) const {
        return table_.data() + (static_cast<int64_t>(group) * sequences() + sequence) * columns_;
    }

private:
    void check_rows(const StepNeeds& needs) const;
    void check_reads(const StepNeeds::Reads& reads, const KVPool& pool) const;
    void check_writes(int group, const KVPool& pool) const;

    int tokens_ = 0;
    int64_t columns_ = 0;
    int64_t groups_ = 0;
    std::vector<int32_t> ids_, positions_, logit_rows_, offsets_, lengths_, table_;
    std::vector<int64_t> slots_;
};

}  // namespace octavo
