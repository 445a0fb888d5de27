//! A device and a queue around others, for tests that change one thing about a device: hooks replace single methods,
//! and every other call goes to the device inside.

use std::fmt;
use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Claims, Device, DeviceError, DeviceFacts, Event, LowerOptions, NodeQuery,
    PendingRead, Program, Queue, Role, RunOptions, Segment, Steps, StoredTensor, Support,
};

/// What a [`Forward`] device does differently: the methods of [`Device`], each of which is also given the device inside
/// and calls it by default.
#[allow(missing_docs)] // each is the method of `Device` of the same name
pub trait DeviceHooks: fmt::Debug + Send + Sync {
    fn name<'a>(&'a self, inner: &'a dyn Device) -> &'a str {
        inner.name()
    }

    fn facts(&self, inner: &dyn Device) -> DeviceFacts {
        inner.facts()
    }

    fn buffer_types<'a>(&'a self, inner: &'a dyn Device, role: Role) -> &'a [Arc<dyn BufferType>] {
        inner.buffer_types(role)
    }

    fn supports(&self, inner: &dyn Device, node: &NodeQuery<'_>) -> Support {
        inner.supports(node)
    }

    fn lower(
        &self,
        inner: &dyn Device,
        segment: &Segment<'_>,
        options: &LowerOptions,
    ) -> Result<Steps, DeviceError> {
        inner.lower(segment, options)
    }

    fn steps_may_move(&self, inner: &dyn Device) -> bool {
        inner.steps_may_move()
    }

    fn compile(
        &self,
        inner: &dyn Device,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<Arc<dyn Program>, DeviceError> {
        inner.compile(steps, bindings)
    }

    fn queue(&self, inner: &dyn Device) -> Result<Box<dyn Queue>, DeviceError> {
        inner.queue()
    }
}

/// A device around another.
///
/// ```
/// use orlop_backend::Device;
/// use orlop_testkit::{DeviceHooks, Forward, ReferenceDevice};
///
/// #[derive(Debug)]
/// struct Renamed;
///
/// impl DeviceHooks for Renamed {
///     fn name<'a>(&'a self, _: &'a dyn Device) -> &'a str {
///         "renamed"
///     }
/// }
///
/// let device = Forward::new(ReferenceDevice::new(), Renamed);
/// assert_eq!(device.name(), "renamed");
/// assert_eq!(device.facts(), device.inner().facts());
/// ```
#[derive(Debug)]
pub struct Forward<H> {
    inner: Arc<dyn Device>,
    hooks: H,
}

impl<H: DeviceHooks> Forward<H> {
    /// A device that does what the inner one does, except for its hooks.
    pub fn new(inner: Arc<dyn Device>, hooks: H) -> Arc<Forward<H>> {
        Arc::new(Forward { inner, hooks })
    }

    /// The device inside.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }

    /// The hooks.
    pub fn hooks(&self) -> &H {
        &self.hooks
    }
}

impl<H: DeviceHooks> Device for Forward<H> {
    fn name(&self) -> &str {
        self.hooks.name(&*self.inner)
    }

    fn facts(&self) -> DeviceFacts {
        self.hooks.facts(&*self.inner)
    }

    fn buffer_types(&self, role: Role) -> &[Arc<dyn BufferType>] {
        self.hooks.buffer_types(&*self.inner, role)
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        self.hooks.supports(&*self.inner, node)
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        self.hooks.lower(&*self.inner, segment, options)
    }

    fn steps_may_move(&self) -> bool {
        self.hooks.steps_may_move(&*self.inner)
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        self.hooks.compile(&*self.inner, steps, bindings)
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        self.hooks.queue(&*self.inner)
    }
}

/// What a [`ForwardQueue`] does differently: how it runs a program.
pub trait QueueHooks: fmt::Debug + Send {
    /// As [`Queue::submit`], with the queue inside.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn submit(
        &mut self,
        inner: &mut dyn Queue,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError>;
}

/// A queue around another: copies, events and waits are those of the queue inside.
#[derive(Debug)]
pub struct ForwardQueue<H> {
    inner: Box<dyn Queue>,
    hooks: H,
}

impl<H: QueueHooks> ForwardQueue<H> {
    /// A queue that does what the inner one does, except for programs, which its hooks run.
    pub fn new(inner: Box<dyn Queue>, hooks: H) -> ForwardQueue<H> {
        ForwardQueue { inner, hooks }
    }
}

impl<H: QueueHooks> Queue for ForwardQueue<H> {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.hooks.submit(&mut *self.inner, program, claims, options) }
    }

    unsafe fn copy(
        &mut self,
        from: &StoredTensor,
        to: &StoredTensor,
        claims: &Claims,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.copy(from, to, claims) }
    }

    fn set(&mut self, to: &StoredTensor, offset: u64, bytes: &[u8]) -> Result<Arc<dyn Event>, DeviceError> {
        self.inner.set(to, offset, bytes)
    }

    fn get(&mut self, from: &StoredTensor, offset: u64, bytes: u64) -> Result<PendingRead, DeviceError> {
        self.inner.get(from, offset, bytes)
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        self.inner.record()
    }

    fn wait(&mut self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        self.inner.wait(event)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.inner.sync()
    }
}
