/* question.h: what a request asks for; private to allocator/. */
#pragma once

#include "allocator/problem.h"

/* The policy that a request names; errors of tandem_policy_find. */
tandem_status tandem_request_policy(const tandem_policy **policy, const tandem_allocation_request *request,
                                    tandem_error *error);

/* Gives a problem the limits of a checked request, and says what is asked for. */
tandem_status tandem_question_apply(tandem_goal *goal, tandem_allocation_problem *problem,
                                    const tandem_allocation_request *request, tandem_error *error);

/* Whether a checked request limits the step by a slowdown, or by the fastest one. */
int tandem_question_has_slowdown(const tandem_allocation_request *request);
