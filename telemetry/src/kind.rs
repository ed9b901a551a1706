//! The small vocabularies that writer and reader share: scopes, reasons, events.
//!
//! In shared memory each of them is a number. The reader turns numbers back with `from_raw`, which knows
//! that memory may hold anything.

/// Declares a field-less enum over `u8` with `ALL`, `from_raw`, `name`.
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $raw:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $raw,)+ }

        impl $name {
            /// Every value, in the order of the numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The value with this number, if there is one.
            pub const fn from_raw(raw: u8) -> Option<Self> {
                match raw { $($raw => Some(Self::$variant),)+ _ => None }
            }

            /// A short stable name in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

/// Kinds that the timeline carries: all but [`radrm_base::Kind::Imported`].
pub const TIMELINE_KINDS: usize = 8;

const _: () = assert!(TIMELINE_KINDS < radrm_base::KIND_COUNT);

vocabulary! {
    /// Whom a limit applies to.
    Scope {
        /// All processes of one job.
        Job = 1, "job";
        /// All jobs of one user.
        User = 2, "user";
        /// All jobs of all members of a group.
        Group = 3, "group";
    }
}

vocabulary! {
    /// Reason that the process of a slot ended.
    EndReason {
        /// Still running, or killed: nothing was written.
        Unknown = 0, "unknown";
        /// The process left in order.
        Exited = 1, "exited";
        /// The process became another program.
        Execed = 2, "execed";
    }
}

vocabulary! {
    /// Reason for a bypass: something was passed through without being acted on, or counted in a coarser place.
    Bypass {
        /// The call came from inside the shim or from a driver function under it.
        Nested = 0, "nested";
        /// Logic of the shim panicked; the call was made all the same.
        Panicked = 1, "panicked";
        /// A driver function that the logic needs does not exist in this driver.
        HelperMissing = 2, "helper_missing";
        /// A driver function that the logic needs returned an error.
        HelperFailed = 3, "helper_failed";
        /// The calling thread has no current context, and nothing else named the device.
        NoContext = 4, "no_context";
        /// The device could not be identified.
        UnknownDevice = 5, "unknown_device";
        /// More GPUs than the segment can name.
        GpuTableFull = 6, "gpu_table_full";
        /// A release of something that was never seen being made.
        UnknownBlock = 7, "unknown_block";
        /// The table of live blocks is full; the block is counted but not listed.
        BlockTableFull = 8, "block_table_full";
        /// The driver handed out an address that was still listed as live.
        BlockReplaced = 9, "block_replaced";
        /// More was discharged than was charged; the figure stopped at 0.
        Underflow = 10, "underflow";
        /// No memory left for a page of the timeline.
        TimelineFull = 11, "timeline_full";
        /// The kernel table is full; launches go to "(other)".
        KernelTableFull = 12, "kernel_table_full";
        /// The name of a kernel could not be found out.
        KernelNameUnknown = 13, "kernel_name_unknown";
        /// All lanes are taken; the thread shares one.
        LaneShared = 14, "lane_shared";
        /// No memory left for a page of counters; the launch went to "(other)".
        LaneFull = 15, "lane_full";
        /// A call inside a stream capture: recorded, not executed.
        Capturing = 16, "capturing";
        /// A graph whose nodes could not be listed.
        GraphUnknown = 17, "graph_unknown";
        /// A pool whose device or size could not be found out.
        PoolUnknown = 18, "pool_unknown";
        /// An array whose size could not be found out.
        ArrayUnknown = 19, "array_unknown";
        /// A handle that was shared or imported in a way that is not followed.
        ForeignHandle = 20, "foreign_handle";
        /// The shim's private tables are full.
        ShimTableFull = 21, "shim_table_full";
        /// A look-up of a symbol that was left alone though its name is the driver's.
        LookupUntouched = 22, "lookup_untouched";
        /// The real function is missing.
        RealMissing = 23, "real_missing";
        /// The body of a conditional node of a graph: how often it runs is not known.
        GraphConditional = 24, "graph_conditional";
        /// A signal handler's stack has no room for recording a call stack.
        SmallStack = 25, "small_signal_stack";
        /// A seccomp filter may forbid what recording a call stack needs.
        SeccompFilter = 26, "seccomp_filter";
        /// Reserved for later use.
        Spare27 = 27, "spare27";
        /// Reserved for later use.
        Spare28 = 28, "spare28";
        /// Reserved for later use.
        Spare29 = 29, "spare29";
        /// Reserved for later use.
        Spare30 = 30, "spare30";
        /// Anything else.
        Other = 31, "other";
    }
}

vocabulary! {
    /// Kind of a ring event. Each kind states what the words `a` to `d` of [`crate::Event`] mean.
    EventKind {
        /// The process joined; written by `join`.
        Joined = 0, "joined";
        /// a = context handle.
        ContextCreated = 1, "context_created";
        /// a = context handle.
        ContextDestroyed = 2, "context_destroyed";
        /// a = module or library handle.
        ModuleLoaded = 3, "module_loaded";
        /// a = executable graph handle, b = kernel nodes.
        GraphInstantiated = 4, "graph_instantiated";
        /// a = bytes asked for, b = free bytes, c = result code.
        RequestFailed = 5, "request_failed";
        /// a = address or handle, b = bytes.
        LargeAlloc = 6, "large_alloc";
        /// a = address or handle, b = bytes.
        LargeFree = 7, "large_free";
        /// a = pool handle.
        PoolCreated = 8, "pool_created";
        /// a = pool handle.
        PoolDestroyed = 9, "pool_destroyed";
        /// Anything else.
        Other = 255, "other";
    }
}

/// Frameworks that a process was seen to use: bits for `Writer::framework`.
pub mod framework {
    /// PyTorch.
    pub const PYTORCH: u64 = 1;
    /// TensorFlow.
    pub const TENSORFLOW: u64 = 1 << 1;
    /// JAX.
    pub const JAX: u64 = 1 << 2;
    /// Numba.
    pub const NUMBA: u64 = 1 << 3;
    /// CuPy.
    pub const CUPY: u64 = 1 << 4;
    /// Triton.
    pub const TRITON: u64 = 1 << 5;
    /// NCCL.
    pub const NCCL: u64 = 1 << 6;
    /// cuDNN.
    pub const CUDNN: u64 = 1 << 7;
    /// cuBLAS.
    pub const CUBLAS: u64 = 1 << 8;
    /// cuda-python.
    pub const CUDA_PYTHON: u64 = 1 << 9;
    /// The CUDA runtime.
    pub const CUDART: u64 = 1 << 10;
}
