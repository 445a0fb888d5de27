//! The functions of the host's ggml that this library calls.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::raw::{
    Backend, Buffer, BufferType, Context, DeviceHandle, Event, InitParams, RawGraph, RawGraphView, RawTensor,
};
use crate::symbols::Symbols;

/// A table of functions: a field per function, found by name, and a method that calls it.
macro_rules! functions {
    (
        $(#[$doc:meta])* $table:ident
        required { $($name:ident = $symbol:literal ($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)* }
        optional { $($may:ident = $may_symbol:literal ($($may_argument:ident: $may_kind:ty),*) -> $may_result:ty;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $table {
            $($name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*
            $($may: Option<unsafe extern "C" fn($($may_kind),*) -> $may_result>,)*
        }

        impl $table {
            /// Finds all functions, or returns the name of a missing one.
            pub(crate) fn find(symbols: Symbols) -> Result<$table, &'static CStr> {
                Ok($table {
                    $($name: {
                        let found = symbols($symbol);
                        if found.is_null() {
                            return Err($symbol);
                        }
                        // SAFETY: `transmute` asks that the address is that of a function of this type: it is not null, and
                        // ggml's function of this name has had this signature in all versions that have it.
                        unsafe {
                            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($kind),*) $(-> $result)?>(found)
                        }
                    },)*
                    $($may: {
                        let found = symbols($may_symbol);
                        // SAFETY: `transmute` asks for null, which is `None`, or a function of this type: ggml's function of
                        // this name has had this signature in all versions that have it.
                        unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                Option<unsafe extern "C" fn($($may_kind),*) -> $may_result>,
                            >(found)
                        }
                    },)*
                })
            }

            $(
                // Pointers come from the host, or were created as its header requires.
                pub(crate) fn $name(&self, $($argument: $kind),*) $(-> $result)? {
                    // SAFETY: the function is the host's, and all callers in this crate pass live objects of the host.
                    unsafe { (self.$name)($($argument),*) }
                }
            )*

            $(
                pub(crate) fn $may(&self, $($may_argument: $may_kind),*) -> Option<$may_result> {
                    let function = self.$may?;
                    // SAFETY: as above.
                    Some(unsafe { function($($may_argument),*) })
                }
            )*
        }
    };
}

functions! {
    /// The ggml of this process.
    Host
    required {
        tensor_overhead = c"ggml_tensor_overhead" () -> usize;
        graph_overhead_custom = c"ggml_graph_overhead_custom" (size: usize, grads: bool) -> usize;
        init = c"ggml_init" (params: InitParams) -> *mut Context;
        free = c"ggml_free" (context: *mut Context);
        new_tensor_4d = c"ggml_new_tensor_4d"
            (context: *mut Context, dtype: c_int, a: i64, b: i64, c: i64, d: i64) -> *mut RawTensor;
        view_1d = c"ggml_view_1d" (context: *mut Context, of: *mut RawTensor, extent: i64, offset: usize) -> *mut RawTensor;
        add = c"ggml_add" (context: *mut Context, a: *mut RawTensor, b: *mut RawTensor) -> *mut RawTensor;
        set_input = c"ggml_set_input" (tensor: *mut RawTensor);
        set_output = c"ggml_set_output" (tensor: *mut RawTensor);
        get_name = c"ggml_get_name" (tensor: *const RawTensor) -> *const c_char;
        op_name = c"ggml_op_name" (op: c_int) -> *const c_char;
        type_name = c"ggml_type_name" (dtype: c_int) -> *const c_char;
        nbytes = c"ggml_nbytes" (tensor: *const RawTensor) -> usize;
        new_graph_custom = c"ggml_new_graph_custom" (context: *mut Context, size: usize, grads: bool) -> *mut RawGraph;
        build_forward_expand = c"ggml_build_forward_expand" (graph: *mut RawGraph, tensor: *mut RawTensor);
        graph_n_nodes = c"ggml_graph_n_nodes" (graph: *mut RawGraph) -> c_int;
        graph_nodes = c"ggml_graph_nodes" (graph: *mut RawGraph) -> *mut *mut RawTensor;
        get_no_alloc = c"ggml_get_no_alloc" (context: *mut Context) -> bool;
        get_first_tensor = c"ggml_get_first_tensor" (context: *const Context) -> *mut RawTensor;
        get_next_tensor = c"ggml_get_next_tensor" (context: *const Context, tensor: *mut RawTensor) -> *mut RawTensor;
        buft_name = c"ggml_backend_buft_name" (buft: *mut BufferType) -> *const c_char;
        buft_alloc_buffer = c"ggml_backend_buft_alloc_buffer" (buft: *mut BufferType, bytes: usize) -> *mut Buffer;
        buft_get_alignment = c"ggml_backend_buft_get_alignment" (buft: *mut BufferType) -> usize;
        buft_get_max_size = c"ggml_backend_buft_get_max_size" (buft: *mut BufferType) -> usize;
        buft_get_alloc_size = c"ggml_backend_buft_get_alloc_size"
            (buft: *mut BufferType, tensor: *const RawTensor) -> usize;
        buffer_free = c"ggml_backend_buffer_free" (buffer: *mut Buffer);
        buffer_get_base = c"ggml_backend_buffer_get_base" (buffer: *mut Buffer) -> *mut c_void;
        buffer_get_size = c"ggml_backend_buffer_get_size" (buffer: *mut Buffer) -> usize;
        buffer_get_alignment = c"ggml_backend_buffer_get_alignment" (buffer: *mut Buffer) -> usize;
        buffer_get_alloc_size = c"ggml_backend_buffer_get_alloc_size"
            (buffer: *mut Buffer, tensor: *const RawTensor) -> usize;
        buffer_set_usage = c"ggml_backend_buffer_set_usage" (buffer: *mut Buffer, usage: c_int);
        buffer_init_tensor = c"ggml_backend_buffer_init_tensor" (buffer: *mut Buffer, tensor: *mut RawTensor) -> c_int;
        buffer_reset = c"ggml_backend_buffer_reset" (buffer: *mut Buffer);
        multi_buffer = c"ggml_backend_multi_buffer_alloc_buffer" (buffers: *mut *mut Buffer, count: usize) -> *mut Buffer;
        cpu_buffer_from_ptr = c"ggml_backend_cpu_buffer_from_ptr" (memory: *mut c_void, bytes: usize) -> *mut Buffer;
        tensor_alloc = c"ggml_backend_tensor_alloc"
            (buffer: *mut Buffer, tensor: *mut RawTensor, address: *mut c_void) -> c_int;
        view_init = c"ggml_backend_view_init" (tensor: *mut RawTensor) -> c_int;
        default_buffer_type = c"ggml_backend_get_default_buffer_type" (backend: *mut Backend) -> *mut BufferType;
    }
    optional {
        version = c"ggml_version" () -> *const c_char;
        // Since 0.22, buffer types may allocate a context's tensors themselves.
        buft_alloc_buffer_n = c"ggml_backend_buft_alloc_buffer_n"
            (buft: *mut BufferType, tensors: *mut *mut RawTensor, count: c_int) -> *mut Buffer;
        buft_get_alloc_size_n = c"ggml_backend_buft_get_alloc_size_n"
            (buft: *mut BufferType, tensors: *mut *mut RawTensor, count: c_int) -> usize;
        // Before 0.22, only the meta buffer type.
        buft_is_meta = c"ggml_backend_buft_is_meta" (buft: *mut BufferType) -> bool;
        meta_alloc_ctx_tensors = c"ggml_backend_meta_alloc_ctx_tensors_from_buft"
            (context: *mut Context, buft: *mut BufferType) -> *mut Buffer;
    }
}

functions! {
    /// What a scheduler needs of the host's ggml, besides [`Host`].
    SchedulerHost
    required {
        dup_tensor = c"ggml_dup_tensor" (context: *mut Context, tensor: *const RawTensor) -> *mut RawTensor;
        view_tensor = c"ggml_view_tensor" (context: *mut Context, tensor: *mut RawTensor) -> *mut RawTensor;
        set_name = c"ggml_set_name" (tensor: *mut RawTensor, name: *const c_char) -> *mut RawTensor;
        graph_view = c"ggml_graph_view" (graph: *mut RawGraph, start: c_int, end: c_int) -> RawGraphView;
        graph_next_uid = c"ggml_graph_next_uid" () -> u64;
        backend_name = c"ggml_backend_name" (backend: *mut Backend) -> *const c_char;
        backend_guid = c"ggml_backend_guid" (backend: *mut Backend) -> *const c_void;
        backend_device = c"ggml_backend_get_device" (backend: *mut Backend) -> *mut DeviceHandle;
        device_type = c"ggml_backend_dev_type" (device: *mut DeviceHandle) -> c_int;
        supports_op = c"ggml_backend_supports_op" (backend: *mut Backend, tensor: *const RawTensor) -> bool;
        supports_buft = c"ggml_backend_supports_buft" (backend: *mut Backend, buft: *mut BufferType) -> bool;
        offload_op = c"ggml_backend_offload_op" (backend: *mut Backend, tensor: *const RawTensor) -> bool;
        graph_compute_async = c"ggml_backend_graph_compute_async"
            (backend: *mut Backend, graph: *mut RawGraphView) -> c_int;
        synchronize = c"ggml_backend_synchronize" (backend: *mut Backend);
        tensor_copy = c"ggml_backend_tensor_copy" (from: *mut RawTensor, to: *mut RawTensor);
        tensor_copy_async = c"ggml_backend_tensor_copy_async"
            (from: *mut Backend, to: *mut Backend, tensor: *const RawTensor, copy: *mut RawTensor);
        tensor_get_async = c"ggml_backend_tensor_get_async"
            (backend: *mut Backend, tensor: *const RawTensor, data: *mut c_void, offset: usize, bytes: usize);
        tensor_set_async = c"ggml_backend_tensor_set_async"
            (backend: *mut Backend, tensor: *mut RawTensor, data: *const c_void, offset: usize, bytes: usize);
        event_new = c"ggml_backend_event_new" (device: *mut DeviceHandle) -> *mut Event;
        event_free = c"ggml_backend_event_free" (event: *mut Event);
        event_record = c"ggml_backend_event_record" (event: *mut Event, backend: *mut Backend);
        event_synchronize = c"ggml_backend_event_synchronize" (event: *mut Event);
        event_wait = c"ggml_backend_event_wait" (backend: *mut Backend, event: *mut Event);
        buffer_type = c"ggml_backend_buffer_get_type" (buffer: *mut Buffer) -> *mut BufferType;
        buffer_usage = c"ggml_backend_buffer_get_usage" (buffer: *mut Buffer) -> c_int;
        buffer_is_host = c"ggml_backend_buffer_is_host" (buffer: *mut Buffer) -> bool;
    }
    optional {}
}

/// A C string of the host.
pub(crate) fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: ggml's names end in a zero, and stay.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
