#include "core/step.h"

#include "core/faults.h"

#include <string>

namespace octavo {

namespace {

std::string text(int64_t n) { return std::to_string(n); }

}  // namespace

// The copies cost microseconds, and nobody can change them between the check and the use.
void Step::take(const StepArrays& from, const StepNeeds& needs, const KVPool& pool) {
    if (from.tokens > needs.max_tokens) {
        throw RequestFault("a step of " + text(from.tokens) + " tokens; this program was planned for at most " +
                           text(needs.max_tokens) + " (max_batched_tokens)");
    }
    tokens_ = static_cast<int>(from.tokens);
    columns_ = from.columns;
    groups_ = from.groups;
    ids_.assign(from.ids, from.ids + from.tokens);
    positions_.assign(from.positions, from.positions + from.tokens);
    logit_rows_.assign(from.logit_rows, from.logit_rows + from.wanted);
    offsets_.assign(from.offsets, from.offsets + from.sequences + 1);
    lengths_.assign(from.lengths, from.lengths + from.sequences);
    table_.assign(from.table, from.table + from.groups * from.sequences * from.columns);
    slots_.assign(from.slots, from.slots + from.groups * from.tokens);
    check_rows(needs);
    for (const StepNeeds::Reads& reads : needs.reads) check_reads(reads, pool);
    for (const int group : needs.writes) check_writes(group, pool);
}

void Step::check_rows(const StepNeeds& needs) const {
    for (const int32_t id : ids_) {
        if (needs.vocabulary > 0 && (id < 0 || id >= needs.vocabulary))
            throw RequestFault("token id " + text(id) + " is not in 0.." + text(needs.vocabulary - 1));
    }
    for (const int32_t position : positions_) {
        if (position < 0) throw std::invalid_argument("a token at position " + text(position));
    }
    for (const int32_t row : logit_rows_) {
        if (row < 0 || row >= tokens_)
            throw std::invalid_argument("logits of row " + text(row) + " are wanted, of " + text(tokens_) + " rows");
    }
    if (offsets_.front() != 0 || offsets_.back() != tokens_) {
        throw std::invalid_argument(text(tokens_) + " rows do not match row offsets from " + text(offsets_.front()) + " to " +
                                    text(offsets_.back()));
    }
    for (size_t s = 0; s < lengths_.size(); ++s) {
        const int64_t count = int64_t{offsets_[s + 1]} - offsets_[s];
        if (count < 0 || count > lengths_[s]) {
            throw std::invalid_argument("sequence " + text(static_cast<int64_t>(s)) + " has " + text(count) + " new tokens of " +
                                        text(lengths_[s]));
        }
    }
}

void Step::check_reads(const StepNeeds::Reads& reads, const KVPool& pool) const {
    if (reads.group >= groups_)
        throw std::invalid_argument("a layer of group " + text(reads.group) + "; there are " + text(groups_) + " block tables");
    for (int s = 0; s < sequences(); ++s) {
        const int64_t end = length(s);
        const int64_t count = int64_t{offset(s + 1)} - offset(s);
        if (count == 0) continue;
        const int64_t first = reads.window == 0 ? 0 : end - count - reads.window + 1;
        if (end > columns_ * pool.block_size) {
            throw KVFault("a sequence of " + text(end) + " tokens has a table of " + text(columns_) + " blocks of " +
                          text(pool.block_size));
        }
        const int32_t* blocks = table(reads.group, s);
        for (int64_t b = (first > 0 ? first : 0) / pool.block_size; b * pool.block_size < end; ++b) {
            if (blocks[b] < 0 || blocks[b] >= pool.num_blocks) {
                throw KVFault("block " + text(blocks[b]) + " is not one of the pool's " + text(pool.num_blocks) + " (blocks 0 to " +
                              text(pool.num_blocks - 1) + ")");
            }
        }
    }
}

void Step::check_writes(int group, const KVPool& pool) const {
    if (group >= groups_)
        throw std::invalid_argument("a layer of group " + text(group) + "; there are " + text(groups_) + " slot mappings");
    const int64_t limit = int64_t{pool.num_blocks} * pool.block_size;
    for (int i = 0; i < tokens_; ++i) {
        const int64_t slot = slots(group)[i];
        if (slot < 0 || slot >= limit) {
            throw KVFault("slot " + text(slot) + " is not one of the pool's " + text(limit) + " (slots 0 to " + text(limit - 1) + ")");
        }
    }
}

}  // namespace octavo
