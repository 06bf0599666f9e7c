"""C structs and numbers of the public headers. Made by scripts/structs.pl: `make structs`."""

from ctypes import POINTER, Structure
from ctypes import (
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_uint8,
    c_void_p,
)

BF16 = 1
CASE_COMBINED = 2
CASE_CURRENT = 0
CASE_NEW_ONLY = 1
CASE_SUBSET = 3
COPIES_GRADIENT = 2
COPIES_INPUT = 1
E4M3 = 4
E5M2 = 5
F16 = 3
F32 = 0
KEEPS_SECOND = 2
MAX_CLASS = 32
MAX_REPLICATE = 64
MAX_TRAINING_POINT = 8
MINIMIZE_MEMORY = 3
MINIMIZE_OPEN = 0
MINIMIZE_SENSITIVITY = 1
MINIMIZE_STEP = 2
MINIMIZE_TRAINING_TIME = 4
MIN_REPLICATE = 3
N_FORMAT = 19
N_PROBE_PART = 5
PROBE_BLOCK = 16
PROBE_SKETCH = 4096
READS_FIRST = 0
READS_SECOND = 1
S8 = 2
SCALE_KNOWN = 2
SCALE_ROW = 1
SCALE_TENSOR = 0
TRIAL_BEYOND = 2
TRIAL_LEAST_PAIRS = 3
TRIAL_LEAST_STEPS = 16
TRIAL_MOST_PAIRS = 256
TRIAL_UNDECIDED = 0
TRIAL_WITHIN = 1

OPERATORS = (
    "images",
    "tokens",
    "labels",
    "linear",
    "conv2d",
    "matmul",
    "embedding",
    "bias",
    "bias_gelu",
    "relu",
    "add",
    "batchnorm",
    "batchnorm_relu",
    "batchnorm_add_relu",
    "maxpool",
    "avgpool",
    "reshape",
    "transpose",
    "slice",
    "gather_labelled",
    "concat_token",
    "concat",
    "mul",
    "dropout",
    "tanh",
    "gelu",
    "map",
    "scale",
    "grouped_conv2d",
    "softmax",
    "layernorm",
    "mul_constant",
    "repeat",
    "call",
    "call_trained",
    "cross_entropy",
)
PRECISIONS = (
    "fp32",
    "tf32",
    "fp16",
    "bf16",
    "fp8",
    "int8",
    "int8_full",
    "mxfp8",
    "nvfp4",
)


class GpuSpec(Structure):
    """tandem_gpu_spec"""

    _fields_ = [
        ("flops_per_s", c_double * 9),
        ("bytes_per_s", c_double),
        ("l2_bytes", c_double),
        ("watts", c_double),
        ("process_nm", c_int),
        ("mhz", c_int),
        ("memory_kind", c_int),
        ("generation", c_int),
        ("n_sm", c_int),
    ]


class Device(Structure):
    """tandem_device"""

    _fields_ = [
        ("name", c_char * 48),
        ("meaning", c_char * 96),
        ("precisions", c_uint),
        ("amp_dtype", c_int),
        ("memory_bytes", c_uint64),
        ("transposed_copy", c_int),
        ("narrow_rows", c_int),
        ("fused_attention", c_uint),
        ("merged_tasks", c_int),
        ("padded_rows", c_int),
        ("copies_in_gradients", c_int),
        ("gpu_spec", GpuSpec),
    ]


class Link(Structure):
    """tandem_link"""

    _fields_ = [
        ("bytes_per_s", c_double),
        ("latency_ns", c_int64),
    ]


class ClusterClass(Structure):
    """tandem_cluster_class"""

    _fields_ = [
        ("device", Device),
        ("n_rank", c_int),
        ("per_node", c_int),
        ("batch", c_int64),
        ("memory_bytes", c_uint64),
        ("link", Link),
        ("slowdown_ppm", c_int64),
    ]


class Cluster(Structure):
    """tandem_cluster"""

    _fields_ = [
        ("n_class", c_int),
        ("classes", ClusterClass * 32),
        ("link_bytes_per_s", c_double),
        ("link_latency_ns", c_int64),
        ("node", Link),
        ("over_network", c_int),
        ("wire", c_int),
    ]


class Assignment(Structure):
    """tandem_assignment"""

    _fields_ = [
        ("n_class", c_int),
        ("n_op", c_int),
        ("precision", POINTER(c_int) * 32),
    ]


class CastScaling(Structure):
    """tandem_cast_scaling"""

    _fields_ = [
        ("window", c_int),
        ("margin", c_int),
    ]


class Sharding(Structure):
    """tandem_sharding"""

    _fields_ = [
        ("stage", c_int),
        ("n_rank", c_int),
        ("rank", c_int),
        ("n_share", c_int),
        ("class_ranks", c_int * 32),
        ("class_units", c_int * 32),
    ]


class StepOptions(Structure):
    """tandem_step_options"""

    _fields_ = [
        ("n_micro", c_int),
        ("n_recompute_segment", c_int),
        ("scaling", CastScaling),
        ("transposed_copy", c_int),
        ("narrow_rows", c_int),
        ("fused_attention", c_uint),
        ("merged_tasks", c_int),
        ("padded_rows", c_int),
        ("copies_in_gradients", c_int),
        ("with_norm", c_int),
        ("separate_partial_grads", c_int),
        ("emulated", c_int),
        ("recipe", c_int),
        ("ddp_buckets", c_int),
        ("ddp_bucket_memory", c_int),
        ("gpu_blocks", c_int),
        ("sharding", Sharding),
    ]


class Made(Structure):
    """tandem_made"""

    _fields_ = [
        ("command", c_char * 2048),
        ("version", c_char * 24),
        ("host", c_char * 192),
        ("seed", c_char * 24),
    ]


class PlanStruct(Structure):
    """tandem_plan"""

    _fields_ = [
        ("name", c_char * 48),
        ("policy", c_char * 24),
        ("model", c_char * 5120),
        ("hash", c_uint64),
        ("cluster", Cluster),
        ("assignment", Assignment),
        ("base_precision", c_int),
        ("keeps_base", c_uint),
        ("bucket_bytes", c_uint64),
        ("objective", c_int),
        ("max_sensitivity", c_double),
        ("slowdown", c_double),
        ("target_ns", c_int64),
        ("fastest_ns", c_int64),
        ("step_ns", c_int64),
        ("peak_bytes", c_uint64 * 32),
        ("method", c_char * 24),
        ("sensitivity_bound", c_double),
        ("lower_bound", c_double),
        ("gap", c_double),
        ("proof", c_char * 24),
        ("scale_rule", c_int),
        ("has_unproven_bound", c_int),
        ("step", StepOptions),
        ("loss_scale", c_double),
        ("made", Made),
    ]


class Request(Structure):
    """tandem_request"""

    _fields_ = [
        ("store", c_char_p),
        ("model", c_char_p),
        ("graph", POINTER(c_void_p)),
        ("n_graph", c_int),
        ("cluster", c_char_p),
        ("batch", c_int64),
        ("memory", c_char_p),
        ("method", c_char_p),
        ("data", c_char_p),
        ("base_precision", c_char_p),
        ("bucket_bytes", c_uint64),
        ("predict", c_int),
        ("collective", c_int),
        ("times_only", c_int),
        ("over_network", c_int),
        ("wire", c_int),
        ("step", StepOptions),
        ("loss_scale", c_double),
        ("norm_is_given", c_int),
        ("kernels", c_int),
        ("without_update", c_int),
        ("from_description", c_int),
    ]


class AllocationRequest(Structure):
    """tandem_allocation_request"""

    _fields_ = [
        ("of", Request),
        ("policy", c_char_p),
        ("uniform", c_char_p),
        ("minimize", c_int),
        ("slowdown_is_given", c_int),
        ("slowdown", c_double),
        ("max_step_ns", c_int64),
        ("max_sensitivity_is_given", c_int),
        ("max_sensitivity", c_double),
        ("global_batch", c_int64),
        ("work_limit", c_int64),
        ("is_free", c_uint),
        ("without_f16_gradients", c_int),
        ("without_certificate", c_int),
    ]


class Goal(Structure):
    """tandem_goal"""

    _fields_ = [
        ("objective", c_int),
        ("max_sensitivity", c_int64),
    ]


class Certificate(Structure):
    """tandem_certificate"""

    _fields_ = [
        ("lower_bound", c_int64),
        ("gap", c_double),
        ("proof", c_char * 24),
    ]


class Allocation(Structure):
    """tandem_allocation"""

    _fields_ = [
        ("name", c_char * 48),
        ("step_ns", c_int64),
        ("target_ns", c_int64),
        ("base_ns", c_int64),
        ("fastest_ns", c_int64),
        ("sensitivity_bound", c_int64),
        ("base_sensitivity_bound", c_int64),
        ("fastest_sensitivity_bound", c_int64),
        ("peak_bytes", c_uint64 * 32),
        ("replays", c_int64),
        ("work", c_int64),
        ("keeps_base", c_uint),
        ("certificate", Certificate),
        ("training_ns", c_double),
        ("training_bound_ns", c_double),
        ("training_from_ns", c_int64),
        ("training_keeps_base", c_uint),
        ("indistinguishable_ns", c_int64),
        ("difference", c_double),
        ("difference_low", c_double),
        ("difference_high", c_double),
    ]


class PlannedClass(Structure):
    """tandem_planned_class"""

    _fields_ = [
        ("busy_ns", c_int64),
        ("exposed_comm_ns", c_int64),
        ("wait_ns", c_int64),
        ("peak_bytes", c_uint64),
        ("sample_per_step", c_int64),
    ]


class PlannedStep(Structure):
    """tandem_planned_step"""

    _fields_ = [
        ("step_ns", c_int64),
        ("n_class", c_int),
        ("slowest", c_int),
        ("classes", PlannedClass * 32),
        ("measured_ppm", c_int64),
    ]


class Provenance(Structure):
    """tandem_provenance"""

    _fields_ = [
        ("n_task", c_int * 4),
        ("ns", c_int64 * 4),
        ("n_fitted", c_int64),
        ("n_contradicting", c_int64),
        ("spread", c_double),
        ("form_interval", c_double),
        ("interval_rows", c_int64),
        ("interval_error", c_double),
        ("interval_cards", c_char * 256),
        ("kernels", c_int),
        ("without_update", c_int),
        ("others_share", c_double),
        ("others_rows", c_int64),
        ("n_unmeasured_kernel", c_int),
        ("amp_ratio", c_double),
    ]


class AllreduceSource(Structure):
    """tandem_allreduce_source"""

    _fields_ = [
        ("n_point", c_int),
        ("n_extrapolated", c_int),
        ("latency_ns", c_double),
        ("bytes_per_s", c_double),
        ("spread", c_double),
        ("n_by_algorithm", c_int * 4),
    ]


class TimeSources(Structure):
    """tandem_time_sources"""

    _fields_ = [
        ("n_class", c_int),
        ("device", c_char * 48 * 32),
        ("of", Provenance * 32),
        ("allreduce", AllreduceSource),
        ("is_net_within_nodes", c_int),
    ]


class GoodputOperator(Structure):
    """tandem_goodput_operator"""

    _fields_ = [
        ("name", c_char * 64),
        ("precision", c_int),
        ("sensitivity", c_double),
        ("low", c_double),
        ("high", c_double),
    ]


class GoodputTrial(Structure):
    """tandem_goodput_trial"""

    _fields_ = [
        ("n_pair", c_int),
        ("n_diverged", c_int),
        ("is_emulated", c_int),
        ("n_step", c_int64),
        ("data", c_char * 64),
        ("extra", c_double),
        ("low", c_double),
        ("high", c_double),
    ]


class GoodputCorrected(Structure):
    """tandem_goodput_corrected"""

    _fields_ = [
        ("n_trial", c_int),
        ("sensitivity", c_double),
        ("low", c_double),
        ("high", c_double),
    ]


class Goodput(Structure):
    """tandem_goodput"""

    _fields_ = [
        ("is_known", c_int),
        ("unknown", c_char * 1024),
        ("is_fp32", c_int),
        ("sensitivity", c_double),
        ("low", c_double),
        ("high", c_double),
        ("prediction_low", c_double),
        ("prediction_high", c_double),
        ("noise", c_double),
        ("bias", c_double),
        ("n_point", c_int),
        ("point", c_double * 8),
        ("sensitivity_at", c_double * 8),
        ("n_largest", c_int),
        ("largest", GoodputOperator * 3),
        ("trial", GoodputTrial),
        ("corrected", GoodputCorrected),
        ("range_batch", c_int64),
        ("samples_per_s", c_double),
        ("goodput", c_double),
        ("fp32_samples_per_s", c_double),
    ]


class BatchPlan(Structure):
    """tandem_batch_plan"""

    _fields_ = [
        ("batch", c_int64 * 32),
        ("plan", POINTER(PlanStruct)),
        ("allocation", Allocation),
        ("goodput", Goodput),
    ]


class BatchChoice(Structure):
    """tandem_batch_choice"""

    _fields_ = [
        ("precision_alone", BatchPlan),
        ("batch_alone", BatchPlan),
        ("both", BatchPlan),
        ("n_split", c_int),
        ("n_missing", c_int),
    ]


class Answer(Structure):
    """tandem_answer"""

    _fields_ = [
        ("plan", POINTER(PlanStruct)),
        ("goal", Goal),
        ("allocation", Allocation),
        ("left_out", c_char * 1024),
        ("step", PlannedStep),
        ("sources", TimeSources),
        ("goodput", Goodput),
        ("split", BatchChoice),
        ("planner", c_void_p),
    ]


class Error(Structure):
    """tandem_error"""

    _fields_ = [
        ("status", c_int),
        ("rank", c_int),
        ("text", c_char * 1024),
    ]


class Candidate(Structure):
    """tandem_candidate"""

    _fields_ = [
        ("cluster", Cluster),
        ("name", c_char * 256),
        ("error", Error),
        ("samples", c_int64),
        ("rate", c_double),
        ("answer", Answer),
    ]


class TimeShift(Structure):
    """tandem_time_shift"""

    _fields_ = [
        ("device", c_char * 48),
        ("half", c_double),
        ("factor", c_double),
    ]


class AdviceInterval(Structure):
    """tandem_advice_interval"""

    _fields_ = [
        ("n", c_int),
        ("shift", TimeShift * 6),
        ("holds", c_int),
        ("best", c_int),
    ]


class RatioShift(Structure):
    """tandem_ratio_shift"""

    _fields_ = [
        ("c", c_int),
        ("device", c_char * 48),
        ("precision", c_int),
        ("ratio", c_double),
        ("half", c_double),
        ("n_changed", c_int * 2),
        ("gain", c_double * 2),
        ("to_measure", c_char * 48 * 2),
    ]


class RatioCheck(Structure):
    """tandem_ratio_check"""

    _fields_ = [
        ("shift", RatioShift * 64),
        ("n", c_int),
        ("n_left_out", c_int),
    ]


class AdviceStruct(Structure):
    """tandem_advice"""

    _fields_ = [
        ("candidate", POINTER(Candidate)),
        ("n", c_int),
        ("best", c_int),
        ("by_goodput", c_int),
        ("is_described", c_int),
        ("interval", AdviceInterval),
        ("ratios", RatioCheck),
    ]


class Sample(Structure):
    """tandem_sample"""

    _fields_ = [
        ("layout", c_int),
        ("n_dim", c_int),
        ("dim", c_int64 * 7),
    ]


class OptimizerOptions(Structure):
    """tandem_optimizer_options"""

    _fields_ = [
        ("kind", c_int),
        ("rate", c_float),
        ("momentum", c_float),
        ("beta1", c_float),
        ("beta2", c_float),
        ("epsilon", c_float),
        ("decay", c_float),
    ]


class RecordedBlock(Structure):
    """tandem_recorded_block"""

    _fields_ = [
        ("bytes", c_int64),
        ("born", c_int),
        ("freed", c_int),
        ("rest", c_int),
        ("is_gradient", c_int),
        ("first_reader", c_int),
        ("n_reader", c_int),
    ]


class RecordedReader(Structure):
    """tandem_recorded_reader"""

    _fields_ = [
        ("product", c_int),
        ("event", c_int),
        ("role", c_int),
    ]


class RecordedProduct(Structure):
    """tandem_recorded_product"""

    _fields_ = [
        ("call", c_int),
        ("forward", c_int),
        ("forward_end", c_int),
        ("backward", c_int),
        ("backward_end", c_int),
        ("copies", c_int),
    ]


class RecordedMemory(Structure):
    """tandem_recorded_memory"""

    _fields_ = [
        ("weight_bytes", c_int64),
        ("trained_bytes", c_int64),
        ("largest_bytes", c_int64),
        ("has_fast_bf16", c_int),
        ("has_growth", c_int),
        ("keeps_gradients", c_int),
        ("n_event", c_int),
        ("backward", c_int),
        ("n_block", c_int),
        ("n_reader", c_int),
        ("n_product", c_int),
        ("block", POINTER(RecordedBlock)),
        ("reader", POINTER(RecordedReader)),
        ("product", POINTER(RecordedProduct)),
        ("channels_last", c_void_p),
    ]


class GraphStruct(Structure):
    """tandem_graph"""

    _fields_ = [
        ("model", c_char * 5120),
        ("batch", c_int64),
        ("hash", c_uint64),
        ("n_op", c_int),
        ("n_parameter", c_int),
        ("op", c_void_p),
        ("parameter", c_void_p),
        ("consumer_start", POINTER(c_int)),
        ("consumer", POINTER(c_int)),
        ("view", POINTER(c_int)),
        ("loss", c_int),
        ("input", c_int),
        ("label", c_int),
        ("sample", Sample),
        ("n_class", c_int64),
        ("length", c_int64),
        ("n_masked", c_int64),
        ("vocabulary", c_int64),
        ("optimizer", OptimizerOptions),
        ("source", c_void_p),
        ("n_constant", c_int),
        ("constant", POINTER(c_void_p)),
        ("is_recorded", c_int),
        ("memory", POINTER(RecordedMemory)),
    ]


class Shape(Structure):
    """tandem_shape"""

    _fields_ = [
        ("n_dim", c_int),
        ("dim", c_int64 * 4),
    ]


class RecordedCall(Structure):
    """tandem_recorded_call"""

    _fields_ = [
        ("kind", c_int),
        ("name", c_char_p),
        ("text", c_char_p),
        ("input", Shape),
        ("second", Shape),
        ("shape", Shape),
        ("kernel", c_int),
        ("stride", c_int),
        ("pad", c_int),
        ("transpose_b", c_int),
        ("parameter_elements", c_int64),
    ]


class RecordedGraph(Structure):
    """tandem_recorded_graph"""

    _fields_ = [
        ("model", c_char_p),
        ("batch", c_int64),
        ("n_call", c_int),
        ("call", POINTER(RecordedCall)),
        ("n_prediction", c_int64),
        ("n_class", c_int64),
        ("optimizer", OptimizerOptions),
        ("memory", POINTER(RecordedMemory)),
    ]


class RecordedCost(Structure):
    """tandem_recorded_cost"""

    _fields_ = [
        ("op", c_int),
        ("precision", c_int),
        ("n", c_int64),
        ("forward_ns", POINTER(c_int64)),
        ("backward_ns", POINTER(c_int64)),
    ]


class RecordedCosts(Structure):
    """tandem_recorded_costs"""

    _fields_ = [
        ("device", c_char_p),
        ("libraries", c_char_p),
        ("n_thread", c_int),
        ("bucket_bytes", c_uint64),
        ("n_cost", c_int),
        ("cost", POINTER(RecordedCost)),
        ("n_update", c_int64),
        ("update_ns", POINTER(c_int64)),
    ]


class MemoryStruct(Structure):
    """tandem_memory"""

    _fields_ = [
        ("weights", c_uint64),
        ("gradients", c_uint64),
        ("optimizer", c_uint64),
        ("histories", c_uint64),
        ("arena", c_uint64),
        ("arena_live", c_uint64),
        ("peak_task", c_int),
        ("activations", c_uint64),
        ("activation_gradients", c_uint64),
        ("weight_copies", c_uint64),
        ("workspace", c_uint64),
        ("peak", c_uint64),
        ("weight_gradients", c_uint64),
        ("evaluation", c_uint64),
    ]


class OpRow(Structure):
    """tandem_op_row"""

    _fields_ = [
        ("name", c_char_p),
        ("op_class", c_int),
        ("n_input", c_int),
        ("n_parameter", c_int),
        ("precisions", c_uint),
        ("saves", c_uint),
        ("dgrad", c_int),
        ("wgrad", c_int),
        ("range", c_float),
    ]


class Statistics(Structure):
    """tandem_statistics"""

    _fields_ = [
        ("n_batch", c_int64),
        ("local_batch", c_int64),
        ("rows", c_int64),
        ("k", c_int64),
        ("columns", c_int64),
        ("x_elements", c_int64),
        ("w_elements", c_int64),
        ("x_amax", c_double),
        ("w_amax", c_double),
        ("g_amax", c_double),
        ("x_square", c_double),
        ("w_square", c_double),
        ("g_square", c_double),
        ("wgrad_square", c_double),
        ("dgrad_square", c_double),
        ("g2_w2", c_double),
        ("g2_x2", c_double),
        ("g2_x2_c", c_double),
        ("x2_g2_d", c_double),
    ]


class ProductOperands(Structure):
    """tandem_product"""

    _fields_ = [
        ("rows", c_int64),
        ("k", c_int64),
        ("columns", c_int64),
        ("x", c_void_p),
        ("w", c_void_p),
        ("g", c_void_p),
        ("transposed", c_int),
    ]


class Window(Structure):
    """tandem_window"""

    _fields_ = [
        ("n", c_int64),
        ("height", c_int64),
        ("width", c_int64),
        ("channels", c_int64),
        ("out_height", c_int64),
        ("out_width", c_int64),
        ("kernel_h", c_int64),
        ("kernel_w", c_int64),
        ("stride", c_int64),
        ("pad", c_int64),
    ]


class EstimatedGradient(Structure):
    """tandem_estimated_gradient"""

    _fields_ = [
        ("variance", c_double),
        ("mean_square", c_double),
    ]


class EstimatedError(Structure):
    """tandem_estimated_error"""

    _fields_ = [
        ("total", c_double),
        ("shared", c_double),
        ("mean_square", c_double),
        ("against", c_double),
        ("wide_total", c_double),
        ("wide_shared", c_double),
        ("wide_mean_square", c_double),
    ]


class EstimateStruct(Structure):
    """tandem_estimate"""

    _fields_ = [
        ("batch", c_int64),
        ("steps", c_int64),
        ("seed", c_uint64),
        ("data", c_char * 128),
        ("optimizer", c_int),
        ("n_op", c_int),
        ("n_point", c_int),
        ("n_replicate", c_int),
        ("without_bias", c_int),
        ("range_batch", c_int64),
        ("point", c_int64 * 8),
        ("gradient", POINTER(EstimatedGradient)),
        ("error", POINTER(EstimatedError)),
        ("is_estimated", POINTER(c_uint8)),
    ]


class SensitivityStep(Structure):
    """tandem_sensitivity_step"""

    _fields_ = [
        ("global_batch", c_int64),
        ("n_micro", c_int),
        ("gradient_noise", c_double),
        ("micro_batch", POINTER(c_double)),
    ]


class SensitivityEstimate(Structure):
    """tandem_sensitivity_estimate"""

    _fields_ = [
        ("value", c_double),
        ("low", c_double),
        ("high", c_double),
        ("noise", c_double),
        ("noise_half", c_double),
        ("bias", c_double),
        ("bias_half", c_double),
        ("at_point", c_double * 8),
    ]


class ProbeSums(Structure):
    """tandem_probe_sums"""

    _fields_ = [
        ("is_before_jump", c_int),
        ("has_second", c_int),
        ("n_products", c_double),
        ("rate_square", c_double),
        ("mean_square", c_double * 5),
        ("error_square", c_double * 19 * 5),
        ("noise", c_double * 2 * 19 * 5),
        ("cross", c_double * 19),
    ]


class ProbeTensor(Structure):
    """tandem_probe_tensor"""

    _fields_ = [
        ("part", c_int),
        ("place", c_int),
        ("n", c_int64),
        ("batch", c_int64),
        ("n_sample", c_int64),
        ("share", c_double),
        ("x", c_void_p),
        ("difference", c_void_p * 2),
        ("range", c_float),
        ("error_scale", c_double),
    ]


class TorchStep(Structure):
    """tandem_torch_step"""

    _fields_ = [
        ("number", c_int64),
        ("duration_ns", c_int64),
        ("compute_ns", c_int64),
        ("comm_ns", c_int64),
        ("exposed_ns", c_int64),
        ("idle_ns", c_int64),
        ("early_ns", c_int64),
        ("n_kernel", c_int64),
    ]


class TorchLeftOut(Structure):
    """tandem_torch_left_out"""

    _fields_ = [
        ("n_without_operator", c_int64),
        ("without_operator_ns", c_int64),
        ("n_without_launch", c_int64),
        ("n_by_id", c_int64),
        ("n_outside", c_int64),
        ("outside_ns", c_int64),
        ("n_in_fragment", c_int64),
        ("in_fragment_ns", c_int64),
        ("n_call_outside", c_int64),
        ("call_outside_ns", c_int64),
        ("n_unknown", c_int64),
        ("unknown_ns", c_int64),
        ("unknown", c_char * 120),
        ("n_pair", c_int64),
        ("n_collective_outside", c_int64),
        ("n_beyond", c_int64),
        ("beyond_ns", c_int64),
    ]


class TorchRank(Structure):
    """tandem_torch_rank"""

    _fields_ = [
        ("path", c_char_p),
        ("rank", c_int),
        ("is_device", c_int),
        ("n_step", c_int),
        ("step", POINTER(TorchStep)),
        ("mean", TorchStep),
        ("wait_ns", c_int64),
        ("late_ns", c_int64),
        ("n_last", c_int64),
        ("n_event", c_int64),
        ("n_incomplete", c_int64),
        ("n_negative", c_int64),
        ("n_overlapping", c_int64),
        ("n_unjoined", c_int64),
        ("joined_ns", c_int64),
        ("n_kernel", c_int64),
        ("kernel_ns", c_int64),
        ("n_device", c_int),
        ("n_stream", c_int),
        ("n_fragment", c_int),
        ("fragment", TorchStep * 2),
        ("left_out", TorchLeftOut),
    ]


class TorchSummary(Structure):
    """tandem_torch_summary"""

    _fields_ = [
        ("n_rank", c_int),
        ("rank", POINTER(TorchRank)),
        ("n_operator", c_int),
        ("operators", c_void_p),
        ("n_collective", c_int),
        ("collective", c_void_p),
        ("slowest", c_int),
        ("n_joined", c_int64),
        ("n_by_order", c_int64),
        ("is_device", c_int),
        ("excess", c_int),
        ("excess_ns", c_int64),
    ]


class TrialPair(Structure):
    """tandem_trial_pair"""

    _fields_ = [
        ("base_loss", POINTER(c_double)),
        ("plan_loss", POINTER(c_double)),
        ("base_held_out", c_double),
        ("plan_held_out", c_double),
        ("plan_held_out_in_base", c_double),
    ]


class TrialQuestion(Structure):
    """tandem_trial_question"""

    _fields_ = [
        ("n_step", c_int64),
        ("at_most", c_double),
        ("n_look", c_int),
    ]


class TrialInterval(Structure):
    """tandem_trial_interval"""

    _fields_ = [
        ("mean", c_double),
        ("low", c_double),
        ("high", c_double),
    ]


class TrialResult(Structure):
    """tandem_trial_result"""

    _fields_ = [
        ("n_pair", c_int),
        ("n_diverged", c_int),
        ("base_loss", c_double),
        ("training", TrialInterval),
        ("held_out", TrialInterval),
        ("held_out_in_base", TrialInterval),
        ("extra", TrialInterval),
        ("answer", c_int),
        ("pairs_needed", c_int),
    ]


class Rounding(Structure):
    """tandem_rounding"""

    _fields_ = [
        ("seed", c_uint64),
        ("stream", c_uint32 * 3),
        ("block", c_uint32),
    ]


class QuantiseCall(Structure):
    """tandem_quantise_call"""

    _fields_ = [
        ("x", c_void_p),
        ("from_", c_int),
        ("rows", c_int64),
        ("columns", c_int64),
        ("x_row", c_int64),
        ("q", c_void_p),
        ("q_row", c_int64),
        ("transposed", c_void_p),
        ("transposed_row", c_int64),
        ("scale_mode", c_int),
        ("range", c_float),
        ("rounding", POINTER(Rounding)),
        ("scale", c_void_p),
        ("amax", c_void_p),
    ]


class CastCall(Structure):
    """tandem_cast_call"""

    _fields_ = [
        ("x", c_void_p),
        ("from_", c_int),
        ("rows", c_int64),
        ("columns", c_int64),
        ("x_row", c_int64),
        ("y", c_void_p),
        ("to", c_int),
        ("y_row", c_int64),
    ]


class DequantiseCall(Structure):
    """tandem_dequantise_call"""

    _fields_ = [
        ("q", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("q_row", c_int64),
        ("x", c_void_p),
        ("to", c_int),
        ("x_row", c_int64),
        ("scale_mode", c_int),
        ("scale", c_void_p),
    ]


class WindowsCall(Structure):
    """tandem_windows_call"""

    _fields_ = [
        ("x", c_void_p),
        ("images", c_int64),
        ("height", c_int64),
        ("width", c_int64),
        ("channels", c_int64),
        ("kernel", c_int64),
        ("stride", c_int64),
        ("pad", c_int64),
        ("columns", c_void_p),
    ]


class ProductS8(Structure):
    """tandem_product_s8"""

    _fields_ = [
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("a", c_void_p),
        ("a_row", c_int64),
        ("a_column", c_int64),
        ("b", c_void_p),
        ("b_row", c_int64),
        ("b_column", c_int64),
        ("c", c_void_p),
        ("c_row", c_int64),
        ("c_type", c_int),
        ("scale", c_float),
        ("row_scale", c_void_p),
        ("column_scale", c_void_p),
        ("bias", c_void_p),
        ("workspace", c_void_p),
        ("accumulate", c_int),
    ]


class LayerOperand(Structure):
    """tandem_layer_operand"""

    _fields_ = [
        ("x", c_void_p),
        ("q", c_void_p),
        ("elements", c_int64),
        ("row", c_int64),
        ("column", c_int64),
        ("step", c_int64 * 2),
        ("stream", c_uint32),
        ("scale", c_float),
    ]


class LinearPass(Structure):
    """tandem_linear_pass"""

    _fields_ = [
        ("to", c_int),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("batch", c_int64 * 2),
        ("a", LayerOperand),
        ("b", LayerOperand),
        ("g", LayerOperand),
        ("c", c_void_p),
        ("bias", c_void_p),
        ("ga", c_void_p),
        ("gb", c_void_p),
        ("g_bias", c_void_p),
        ("seed", c_uint64),
        ("stream", c_uint32 * 2),
        ("gb_transposed", c_int),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
    ]


class Conv2dS8(Structure):
    """tandem_conv2d_s8"""

    _fields_ = [
        ("images", c_int64),
        ("height", c_int64),
        ("width", c_int64),
        ("channels", c_int64),
        ("out", c_int64),
        ("kernel", c_int64),
        ("stride", c_int64),
        ("pad", c_int64),
        ("x", LayerOperand),
        ("w", LayerOperand),
        ("g", LayerOperand),
        ("y", c_void_p),
        ("bias", c_void_p),
        ("gx", c_void_p),
        ("gw", c_void_p),
        ("g_bias", c_void_p),
        ("seed", c_uint64),
        ("stream", c_uint32 * 2),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
    ]


class Conv3x3(Structure):
    """tandem_conv3x3"""

    _fields_ = [
        ("images", c_int64),
        ("height", c_int64),
        ("width", c_int64),
        ("channels", c_int64),
        ("out", c_int64),
        ("from_", c_int),
        ("x", c_void_p),
        ("w", c_void_p),
        ("g", c_void_p),
        ("y", c_void_p),
        ("gx", c_void_p),
        ("gw", c_void_p),
        ("workspace", c_void_p),
    ]


class CudaQuantiseCall(Structure):
    """tandem_cuda_quantise_call"""

    _fields_ = [
        ("x", c_void_p),
        ("from_", c_int),
        ("batch", c_int64),
        ("rows", c_int64),
        ("columns", c_int64),
        ("q", c_void_p),
        ("to", c_int),
        ("transposed", c_void_p),
        ("scale_mode", c_int),
        ("range", c_float),
        ("history", c_void_p),
        ("reuse_range", c_int),
        ("rounding", POINTER(Rounding)),
        ("stream_offset", c_void_p),
        ("scale", c_void_p),
        ("workspace", c_void_p),
    ]


class CudaDequantiseCall(Structure):
    """tandem_cuda_dequantise_call"""

    _fields_ = [
        ("q", c_void_p),
        ("from_", c_int),
        ("rows", c_int64),
        ("columns", c_int64),
        ("x", c_void_p),
        ("to", c_int),
        ("scale_mode", c_int),
        ("scale", c_void_p),
    ]


class CudaProductCall(Structure):
    """tandem_cuda_product_call"""

    _fields_ = [
        ("batch", c_int64),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("a", c_void_p),
        ("b", c_void_p),
        ("a_type", c_int),
        ("b_type", c_int),
        ("a_transposed", c_int),
        ("b_transposed", c_int),
        ("a_scale", c_void_p),
        ("b_scale", c_void_p),
        ("c", c_void_p),
        ("c_type", c_int),
        ("tf32", c_int),
        ("accumulate", c_int),
    ]
