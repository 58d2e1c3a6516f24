"""Fields of a `config.json` that change neither parameters, FLOPs nor the cache, in any family.

Token ids, initialisation, dropout, losses, precision of the arithmetic, rotary frequencies, scalings by a constant,
generation settings, and the bookkeeping of the library. A field of the second list does not matter only while it is off.
"""

from typing import Any

_TOKENS = """
bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id eod_token_id im_start_id im_end_id
im_newline_id image_token_id image_token_index video_token_id video_token_index audio_token_id vision_start_token_id
vision_end_token_id vision_token_id boi_token_index eoi_token_index boi_token_id eoi_token_id image_start_token_id
image_end_token_id video_start_token_id video_end_token_id media_placeholder_token_id video_placeholder ignore_index
text_start_id text_end_id mm_tokens_per_image decoder_start_token_id forced_bos_token_id forced_eos_token_id
suppress_tokens begin_suppress_tokens bad_words_ids use_unified_vision_chunk image_seq_length audio_start_token_id
audio_end_token_id boa_token_id eoa_token_id pad_token pad_id eod_token tokenizer_class prefix
"""
_LIBRARY = """
architectures auto_map transformers_version torch_dtype dtype model_name name use_cache return_dict output_attentions
output_hidden_states torchscript is_decoder is_encoder_decoder add_cross_attention tie_encoder_decoder
finetuning_task id2label label2id num_labels task_specific_params problem_type pruned_heads chunk_size_feed_forward
cross_attention_hidden_size use_bfloat16 tf_legacy_loss gradient_checkpointing quantization quantization_config
pretraining_tp ep_size use_flash_attn attn_implementation flash_attn use_flash_attention onnx_safe fp32 fp16 bf16
kv_cache_dtype keys_to_ignore_at_inference vocab_file custom_pipelines license date model_max_length unsloth_version
unsloth_fixed use_mamba_kernels use_mambapy use_associative_scan mamba_ssm_dtype mamba_ssm_cache_dtype
use_cache_quantization use_cache_kernel use_dynamic_ntk use_logn_attn softmax_in_fp32 force_download
use_fused_rms_norm use_fused_cross_entropy fuse_cross_entropy fuse_norm fuse_swiglu 
num_logits_to_keep reorder_and_upcast_attn scale_attn_by_inverse_layer_idx scale_attn_weights attention_softmax_in_fp32
scale_attention_softmax_in_fp32 validate_runner_input inference_runner pre_allocate_kv_cache max_batch_size
max_sequence_length residual_in_fp32 rescale_prenorm_residual enable_lm_head_fp32 enable_attention_fp32_softmax
enable_moe_fp32_combine attention_probs_dropout_prob transformers.js_config sharding_config expert_dtype
use_cute_rms_norm rmsnorm_fp32 disable_ffn_act_cast
"""
_TRAINING = """
initializer_range initializer_factor init_std init_method attention_dropout hidden_dropout hidden_dropout_prob
attn_dropout attn_pdrop resid_pdrop resid_dropout embd_pdrop emb_pdrop embed_dropout embedding_dropout dropout
activation_dropout classifier_dropout layerdrop layer_dropout summary_type summary_use_proj summary_activation
summary_first_dropout summary_proj_to_labels router_aux_loss_coef output_router_logits aux_loss_alpha seq_aux router_z_loss_coef
router_jitter_noise input_jitter_noise moe_aux_loss_coef z_loss_coefficient router_bias_update_rate load_balance_coeff
use_aux_loss mtp_loss_lambda mtp_loss_weight mtp_loss_scaling_factor initializer_cutoff_factor 
moe_dropout_prob moe_capacity training_sequence_length
"""
_ARITHMETIC = """
hidden_act hidden_activation activation_function activation mlp_hidden_act mamba_hidden_act rms_norm_eps layer_norm_eps layer_norm_epsilon
layernorm_epsilon norm_eps norm_epsilon hc_eps hc_sinkhorn_iters rope_theta rope_scaling rope_parameters rope_local_base_freq
rotary_pct rotary_dim rotary_base rotary_emb_base partial_rotary_factor rope_pct rope_ratio rope_interleave indexer_rope_interleave rope_interleaved
compress_rope_theta global_rope_theta local_rope_theta rope_position_base original_max_position_embeddings
initial_context_length use_mrope mrope_section use_rope logit_scale logit_scaling logits_scaling embedding_multiplier
residual_multiplier attention_multiplier lm_head_multiplier mlp_multipliers key_multiplier attention_out_multiplier
attention_in_multiplier ssm_multipliers ssm_in_multiplier ssm_out_multiplier scale_emb scale_depth dim_model_base
dim_model_base_lmh mup_denominator mup_enabled query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping
swiglu_limit swiglu_limits clip_qkv qkv_clip routed_scaling_factor route_scale
router_scaling_factor moe_routed_scaling_factor moe_router_logit_softcapping norm_topk_prob scoring_func score_func score_function
topk_method topk_group n_group num_expert_group n_groups_routing route_norm moe_renormalize moe_router_activation_func
moe_apply_router_weight_on_input moe_norm_min expert_selection_fn attention_value_scale attn_temperature_tuning
floor_scale attn_scale time_step_min time_step_max time_step_floor time_step_limit mamba_dt_min
mamba_dt_max mamba_dt_limit mamba_dt_init_floor time_step_init_scheme time_step_scale chunk_size mamba_chunk_size
mamba_norm_before_gate full_attn_alpha_factor full_attn_beta_factor linear_attn_alpha_factor
linear_attn_beta_factor mlp_alpha_factor mlp_beta_factor layernorm_full_attention_alpha layernorm_full_attention_beta
layernorm_linear_attention_alpha layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta
block_size shared_moe_mode alibi_bias_max max_rope_theta yarn_beta_fast 
original_rope_theta
moe_shared_expert_overlap moe_layer_recompute attention_other_setting
llama_4_scaling rope_traditional use_yarn yarn_factor
"""
_GENERATION = """
temperature top_k top_p typical_p repetition_penalty length_penalty diversity_penalty no_repeat_ngram_size
encoder_no_repeat_ngram_size num_beams num_beam_groups num_return_sequences max_length min_length do_sample early_stopping
output_scores return_dict_in_generate exponential_decay_length_penalty remove_invalid_values max_new_tokens
chat_format generation_config max_window_size
"""
INERT = frozenset(" ".join((_TOKENS, _LIBRARY, _TRAINING, _ARITHMETIC, _GENERATION)).split())
"""Never matter."""

INERT_WHILE_OFF = frozenset(
    ["attention_bias", "attention_out_bias", "mlp_bias", "use_bias", "use_qkv_bias", "qkv_bias", "bias", "lm_head_bias", "moe_use_bias", "add_bias_linear", "qk_layernorm", "use_qk_norm", "mlp_only_layers", "use_sliding_window", "sliding_window", "num_nextn_predict_layers", "mtp_num_hidden_layers", "use_mtp", "num_mtp_modules", "num_experts", "n_routed_experts", "num_local_experts", "n_shared_experts", "num_shared_experts", "shared_intermediate_size", "attn_output_gate", "use_parallel_residual", "use_bidirectional_attention", "enable_moe_block", "use_double_wide_mlp", "num_kv_shared_layers", "attention_k_eq_v", "use_cla", "cla_share_factor", "use_mla", "tie_word_embeddings", "alibi", "projector_bias", "use_lora", "lora_rank"]
)
"""Do not matter while false, null, 0 or empty: the plain form of every family here."""


def is_inert(name: str, value: Any) -> bool:
    """Whether a field that no reader asked for can be passed over.

    >>> is_inert("rope_theta", 10000.0), is_inert("attention_bias", False), is_inert("attention_bias", True)
    (True, True, False)
    """
    return name in INERT or name.startswith("_") or (name in INERT_WHILE_OFF and not value)
