//! Uploads of weights that run beside kernels, on a stream of their own, behind what the queue was given before them. Later
//! work of the queue waits only for those uploads whose destinations it touches. Their sources are read-only, so no other
//! queue waits for them.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use orlop_backend::Buffer;

use crate::Error;
use crate::sys::{DevicePtr, Event, PrimaryContext, RegisteredPages, Stream};

/// Smaller copies go to the queue's own stream.
pub(crate) const MIN_ASYNC_UPLOAD: u64 = 256 << 10;

/// A queue's uploads.
#[derive(Debug)]
pub(crate) struct AsyncUploads {
    context: Arc<PrimaryContext>,
    stream: Stream,
    under_way: Vec<Upload>,
    /// Events for further uploads.
    free: Vec<Event>,
    sources: Vec<UploadSource>,
}

#[derive(Debug)]
struct Upload {
    to: Range<DevicePtr>,
    arrived: Event,
}

/// Bytes that were uploaded, the whole pages of which are registered for the GPU to read by itself; none if the driver
/// refused that.
#[derive(Debug)]
struct UploadSource {
    /// The bytes, as the host sees them.
    bytes: Range<usize>,
    pages: Range<usize>,
    /// Dropped before the buffer that the pages are of.
    _registered: Option<RegisteredPages>,
    _buffer: Arc<dyn Buffer>,
}

/// Bytes of a page, or a multiple.
const PAGE: usize = 64 << 10;

impl AsyncUploads {
    pub(crate) fn new(context: &Arc<PrimaryContext>) -> Result<AsyncUploads, Error> {
        let stream = Stream::new(context)?;
        let context = Arc::clone(context);
        Ok(AsyncUploads { context, stream, under_way: Vec::new(), free: Vec::new(), sources: Vec::new() })
    }

    /// Starts an upload, behind all that a stream was given.
    ///
    /// # Safety
    /// `from` has as many readable bytes, which are the buffer's, and `to` is the address of as many bytes of this GPU's
    /// memory. Until the upload has arrived, the source is not written, both stay allocated, and work that touches `to` is
    /// ordered with this ([`AsyncUploads::land`]). The buffer's host memory is not written while the buffer lives.
    pub(crate) unsafe fn start(
        &mut self,
        behind: &Stream,
        to: DevicePtr,
        (buffer, from): (&Arc<dyn Buffer>, NonNull<u8>),
        bytes: u64,
    ) -> Result<(), Error> {
        let asked = from.addr().get()..from.addr().get() + bytes as usize;
        // SAFETY: `register` asks for the buffer's read-only bytes: this function's contract.
        let pages = unsafe { self.register(buffer, from, asked.clone()) };
        let arrived = self.free.pop().map_or_else(|| Event::new(&self.context), Ok)?;
        arrived.record(behind)?;
        self.stream.wait(&arrived)?;
        // A copy is either of registered pages or of others.
        for piece in [asked.start..pages.start, pages.clone(), pages.end..asked.end] {
            let offset = piece.start - asked.start;
            if !piece.is_empty() {
                let source = from.as_ptr().wrapping_add(offset).cast_const();
                // SAFETY: `Stream::write` asks for what this function's contract says; pieces lie within what was asked for.
                unsafe { self.stream.write(to + offset as u64, source, piece.len() as u64) }?;
            }
        }
        arrived.record(&self.stream)?;
        self.under_way.push(Upload { to: to..to + bytes, arrived });
        Ok(())
    }

    /// Registers the whole pages of a source, and tells which they are.
    ///
    /// # Safety
    /// The bytes from `from` on are the buffer's, and are not written while it lives.
    unsafe fn register(
        &mut self,
        buffer: &Arc<dyn Buffer>,
        from: NonNull<u8>,
        bytes: Range<usize>,
    ) -> Range<usize> {
        if let Some(known) = self.sources.iter().find(|known| known.bytes == bytes) {
            return known.pages.clone();
        }
        let begin = bytes.start.next_multiple_of(PAGE).min(bytes.end);
        let end = (bytes.end / PAGE * PAGE).max(begin);
        let start = NonNull::new(from.as_ptr().wrapping_add(begin - bytes.start));
        // SAFETY: `RegisteredPages::new` asks for memory that lives, and is not written, until the result is dropped: the buffer
        // is kept until then, and `register`'s contract says the rest.
        let register = |start| unsafe { RegisteredPages::new(&self.context, start, end - begin) }.ok();
        let registered = start.filter(|_| end > begin).and_then(register);
        let pages = if registered.is_some() { begin..end } else { bytes.start..bytes.start };
        self.sources.push(UploadSource {
            bytes,
            pages: pages.clone(),
            _registered: registered,
            _buffer: Arc::clone(buffer),
        });
        pages
    }

    /// Lets a stream wait for the uploads to places that are `touched`.
    pub(crate) fn land(
        &mut self,
        stream: &Stream,
        touched: impl Fn(&Range<DevicePtr>) -> bool,
    ) -> Result<(), Error> {
        let mut waited = Ok(());
        for upload in self.under_way.extract_if(.., |upload| touched(&upload.to)) {
            waited = waited.and(stream.wait(&upload.arrived));
            self.free.push(upload.arrived);
        }
        waited
    }

    /// Waits on the host until all uploads have arrived.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.stream.sync()
    }
}

impl Drop for AsyncUploads {
    fn drop(&mut self) {
        // Pages are unregistered behind the uploads that read them.
        let _ = self.sync();
    }
}

/// Whether two ranges overlap.
pub(crate) fn overlap(a: &Range<DevicePtr>, b: &Range<DevicePtr>) -> bool {
    a.start < b.end && b.start < a.end
}
