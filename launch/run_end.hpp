// How the ranks of a measurement end when a signal comes, so that rank 0 has its time and one line says why. Used
// within an InterruptWatch, on its thread.
#pragma once

#include <functional>
#include <string>

#include "launch/session.hpp"

namespace shardscope::launch {

/// Ends rank 0's part in the run: on this host no rank says anything after it. last_words: writes and shows what there
/// is; returns the words of the error.
void say_interrupted(const std::function<std::string(const std::string& signal)>& last_words, const char* signal,
                     Session& session);

/// What another rank does: leaves rank 0 its time. Of the second that Open MPI gives all ranks, nothing is left once
/// the first of them has ended. Only then, where rank 0 was not told to end, does this one say why it does.
void hold_on(const char* signal, Session& session);

}  // namespace shardscope::launch
