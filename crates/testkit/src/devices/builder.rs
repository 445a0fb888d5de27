//! What a test device is told about itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use orlop_backend::{Device, DeviceClass, DeviceFacts, Link};
use orlop_graph::{Graph, Op};

use super::TestDevice;
use super::clock::VirtualClock;

pub(super) type OpFilter = Box<dyn Fn(&Op) -> bool + Send + Sync>;
pub(super) type Estimate = Box<dyn Fn(&orlop_backend::Step, &Graph) -> f64 + Send + Sync>;

/// What a [`TestDevice`] is like.
pub(super) struct Settings {
    pub(super) name: Arc<str>,
    /// Everything but `memory` and `lost`, which change.
    pub(super) facts: DeviceFacts,
    pub(super) alignment: Option<u64>,
    pub(super) max_bytes: u64,
    pub(super) memory: Option<u64>,
    pub(super) fresh_bytes: Option<u8>,
    pub(super) host_visible: bool,
    pub(super) reads_host: bool,
    pub(super) direct_copies: bool,
    pub(super) only: Option<OpFilter>,
    pub(super) without: Vec<String>,
    pub(super) wants_offload: bool,
    pub(super) step_delay: Duration,
    pub(super) copy_delay: Duration,
    pub(super) patience: Duration,
    pub(super) clock: Option<(VirtualClock, Estimate)>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Makes a [`TestDevice`]. Setters never fail, and each says its default.
#[derive(Debug)]
pub struct TestDeviceBuilder {
    inner: Arc<dyn Device>,
    settings: Settings,
}

impl TestDeviceBuilder {
    pub(super) fn new(inner: Arc<dyn Device>) -> TestDeviceBuilder {
        let facts = inner.facts();
        let settings = Settings {
            name: Arc::from(format!("test {}", inner.name())),
            facts: DeviceFacts {
                description: format!("test device around {}", inner.name()),
                class: DeviceClass::Test,
                memory: None,
                asynchronous: false,
                lost: false,
                ..facts
            },
            alignment: None,
            max_bytes: u64::MAX,
            memory: None,
            fresh_bytes: None,
            host_visible: false,
            reads_host: false,
            direct_copies: false,
            only: None,
            without: Vec::new(),
            wants_offload: false,
            step_delay: Duration::ZERO,
            copy_delay: Duration::ZERO,
            patience: Duration::from_secs(30),
            clock: None,
        };
        TestDeviceBuilder { inner, settings }
    }

    /// The name of the device and of its memory. Default `test` and the inner device's name.
    #[must_use]
    pub fn name(mut self, name: &str) -> TestDeviceBuilder {
        self.settings.name = Arc::from(name);
        self
    }

    /// Its family. Default [`DeviceClass::Test`].
    #[must_use]
    pub fn class(mut self, class: DeviceClass) -> TestDeviceBuilder {
        self.settings.facts.class = class;
        self
    }

    /// The alignment that its memory asks for. Default: the inner device's.
    ///
    /// Any number is taken, also one that is no alignment: what plans with it must say so. Below 4, kernels of
    /// the inner device may refuse their scratch memory.
    #[must_use]
    pub fn alignment(mut self, bytes: u64) -> TestDeviceBuilder {
        self.settings.alignment = Some(bytes);
        self
    }

    /// Most bytes of one buffer. Default: the inner device's limit.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> TestDeviceBuilder {
        self.settings.max_bytes = bytes;
        self
    }

    /// All the memory there is; its facts show what is free. Default: no end of it, and no such fact.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> TestDeviceBuilder {
        self.settings.memory = Some(bytes);
        self
    }

    /// What new buffers are full of, for those who read what they did not write. Default: as the inner device
    /// gives them, which is zeros in host memory.
    #[must_use]
    pub fn fresh_bytes(mut self, value: u8) -> TestDeviceBuilder {
        self.settings.fresh_bytes = Some(value);
        self
    }

    /// Whether the host and other devices reach its memory, as if it were a processor. Default no.
    #[must_use]
    pub fn host_visible(mut self, yes: bool) -> TestDeviceBuilder {
        self.settings.host_visible = yes;
        self
    }

    /// Whether operands may lie in any host memory. Results never do, unless they are views. Default no.
    #[must_use]
    pub fn reads_host(mut self, yes: bool) -> TestDeviceBuilder {
        self.settings.reads_host = yes;
        self
    }

    /// Whether copies between two of its own buffers need no host memory. Default no.
    #[must_use]
    pub fn direct_copies(mut self, yes: bool) -> TestDeviceBuilder {
        self.settings.direct_copies = yes;
        self
    }

    /// Refuses every op but these. Views are always supported. Default: what the inner device supports.
    #[must_use]
    pub fn only(mut self, supported: impl Fn(&Op) -> bool + Send + Sync + 'static) -> TestDeviceBuilder {
        self.settings.only = Some(Box::new(supported));
        self
    }

    /// Refuses ops of these names, which add up over calls. Views are always supported. Default none.
    #[must_use]
    pub fn without<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> TestDeviceBuilder {
        self.settings.without.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Whether it wants ops even if their weights have to be brought to it. Default: as the inner device.
    #[must_use]
    pub fn wants_offload(mut self, yes: bool) -> TestDeviceBuilder {
        self.settings.wants_offload = yes;
        self
    }

    /// Whether its queues run beside the host, each on a thread of its own. Default no: work is done when it has
    /// been given.
    #[must_use]
    pub fn asynchronous(mut self, yes: bool) -> TestDeviceBuilder {
        self.settings.facts.asynchronous = yes;
        self
    }

    /// Time that passes for each step of a program before it runs. Default none.
    #[must_use]
    pub fn step_delay(mut self, delay: Duration) -> TestDeviceBuilder {
        self.settings.step_delay = delay;
        self
    }

    /// Time that passes before each copy on a queue. Default none.
    #[must_use]
    pub fn copy_delay(mut self, delay: Duration) -> TestDeviceBuilder {
        self.settings.copy_delay = delay;
        self
    }

    /// How long to wait for an event before that is an error, so that two queues that wait for each other do not
    /// do so for good. Default 30 seconds.
    #[must_use]
    pub fn patience(mut self, longest: Duration) -> TestDeviceBuilder {
        self.settings.patience = longest;
        self
    }

    /// Floating-point operations a second, as its facts say. Default: the inner device's.
    #[must_use]
    pub fn flops(mut self, flops: f64) -> TestDeviceBuilder {
        self.settings.facts.flops = flops;
        self
    }

    /// Bytes a second from its own memory, as its facts say. Default: the inner device's.
    #[must_use]
    pub fn bytes_per_second(mut self, bytes: f64) -> TestDeviceBuilder {
        self.settings.facts.bytes_per_second = bytes;
        self
    }

    /// Seconds to start a step, as its facts say. Default: the inner device's.
    #[must_use]
    pub fn launch_seconds(mut self, seconds: f64) -> TestDeviceBuilder {
        self.settings.facts.launch_seconds = seconds;
        self
    }

    /// Its way to host memory, as its facts say; also what copies cost on a virtual clock. Default: the inner
    /// device's.
    #[must_use]
    pub fn host_link(mut self, link: Link) -> TestDeviceBuilder {
        self.settings.facts.host_link = link;
        self
    }

    /// Counts the time that its work would take, with the seconds of each step from `estimate`. Default: nothing
    /// is counted.
    #[must_use]
    pub fn clock(
        mut self,
        clock: &VirtualClock,
        estimate: impl Fn(&orlop_backend::Step, &Graph) -> f64 + Send + Sync + 'static,
    ) -> TestDeviceBuilder {
        self.settings.clock = Some((clock.clone(), Box::new(estimate)));
        self
    }

    /// The device.
    pub fn build(self) -> Arc<TestDevice> {
        TestDevice::new(self.inner, Arc::new(self.settings))
    }
}
