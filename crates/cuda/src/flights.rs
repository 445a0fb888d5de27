//! Copies from files that run beside kernels: on a stream of their own, behind what the queue was given before them. What
//! it is given later waits for those alone whose places it touches; and as nobody writes what they come from, nobody else
//! waits for them.

use std::ops::Range;
use std::sync::Arc;

use orlop_backend::Buffer;

use crate::Error;
use crate::sys::{DevicePtr, Driver, Event, Stream};

/// Copies below this wait in line with everything else.
pub(crate) const LEAST_FLIGHT: u64 = 256 << 10;

/// A queue's copies.
#[derive(Debug)]
pub(crate) struct AsyncUploads {
    stream: Stream,
    under_way: Vec<Flight>,
    /// Events that nobody waits for any more.
    free: Vec<Event>,
    /// Pages of files.
    pinned: Vec<Pinned>,
}

#[derive(Debug)]
struct Flight {
    places: Range<DevicePtr>,
    arrived: Event,
}

/// Whole pages that stay where they are, so that the card reads them itself; none if that was refused.
#[derive(Debug)]
struct Pinned {
    /// Keeps them alive.
    _buffer: Arc<dyn Buffer>,
    /// The bytes that were asked for, as the host sees them.
    asked: Range<usize>,
    pages: Range<usize>,
}

/// Bytes of a page, or more.
const PAGE: usize = 64 << 10;

impl AsyncUploads {
    pub(crate) fn new(driver: &Driver) -> Result<AsyncUploads, Error> {
        let stream = driver.stream()?;
        Ok(AsyncUploads { stream, under_way: Vec::new(), free: Vec::new(), pinned: Vec::new() })
    }

    /// Sends bytes of a file on their way, behind all that a stream was given.
    ///
    /// # Safety
    /// They must be the buffer's, and stay as they are until they have landed.
    pub(crate) unsafe fn start(
        &mut self,
        driver: &Driver,
        behind: Stream,
        to: DevicePtr,
        (buffer, from): (&Arc<dyn Buffer>, *const u8),
        bytes: u64,
    ) -> Result<(), Error> {
        let asked = from.addr()..from.addr() + bytes as usize;
        let pages = self.pin(driver, buffer, from, asked.clone());
        let arrived = self.free.pop().map_or_else(|| driver.event(), Ok)?;
        driver.record(arrived, behind)?;
        driver.wait(self.stream, arrived)?;
        // One copy is of pinned pages or of others.
        for piece in [asked.start..pages.start, pages.clone(), pages.end..asked.end] {
            let offset = piece.start - asked.start;
            if !piece.is_empty() {
                // SAFETY: as for the caller; pieces lie within what was asked for.
                unsafe {
                    driver.write_async(
                        to + offset as u64,
                        from.wrapping_add(offset),
                        piece.len() as u64,
                        self.stream,
                    )
                }?;
            }
        }
        driver.record(arrived, self.stream)?;
        self.under_way.push(Flight { places: to..to + bytes, arrived });
        Ok(())
    }

    /// Lets the card read bytes of a file itself, as far as they are whole pages, and tells which.
    fn pin(
        &mut self,
        driver: &Driver,
        buffer: &Arc<dyn Buffer>,
        from: *const u8,
        asked: Range<usize>,
    ) -> Range<usize> {
        if let Some(known) = self.pinned.iter().find(|known| known.asked == asked) {
            return known.pages.clone();
        }
        let begin = asked.start.next_multiple_of(PAGE).min(asked.end);
        let end = (asked.end / PAGE * PAGE).max(begin);
        let place = from.wrapping_add(begin - asked.start).cast_mut();
        // SAFETY: `pin` asks for memory that lives until it is let go: the buffer is kept until then.
        let done = end > begin && unsafe { driver.pin(place, (end - begin) as u64) }.is_ok();
        let pages = if done { begin..end } else { asked.start..asked.start };
        self.pinned.push(Pinned { _buffer: Arc::clone(buffer), asked, pages: pages.clone() });
        pages
    }

    /// Lets a stream wait for the copies to places that are `touched`.
    pub(crate) fn land(
        &mut self,
        driver: &Driver,
        stream: Stream,
        touched: impl Fn(&Range<DevicePtr>) -> bool,
    ) -> Result<(), Error> {
        let mut waited = Ok(());
        self.under_way.retain(|flight| {
            let here = touched(&flight.places);
            if here {
                waited = waited.clone().and(driver.wait(stream, flight.arrived));
                self.free.push(flight.arrived);
            }
            !here
        });
        waited
    }

    /// Waits for all, and gives everything back.
    pub(crate) fn end(&mut self, driver: &Driver) {
        let _ = driver.sync(self.stream);
        let flown = self.under_way.drain(..).map(|flight| flight.arrived);
        flown.chain(self.free.drain(..)).for_each(|event| driver.destroy_event(event));
        let pinned = self.pinned.drain(..).filter(|pinned| !pinned.pages.is_empty());
        pinned.for_each(|pinned| driver.unpin(pinned.pages.start));
        driver.destroy_stream(self.stream);
    }
}

/// Whether two ranges have anything in common.
pub(crate) fn overlap(a: &Range<DevicePtr>, b: &Range<DevicePtr>) -> bool {
    a.start < b.end && b.start < a.end
}
