/* image_slots.h: images of a data set (data.h) in the memory of a device, whose kernels read them there. */
#ifndef TANDEM_IMAGE_SLOTS_H
#define TANDEM_IMAGE_SLOTS_H

#include <stdint.h>

/* Of a resized image: where a row or a column lies among those of the data set's: between `first` and `next`,
 * `weight` of the way. */
typedef struct tandem_pixel_blend {
    int32_t first, next;
    float weight;
} tandem_pixel_blend;

/* Batches of images in the memory of a device: two slots, each with the pixels of a micro-step's samples, as
 * tandem_data_read_pixels gives them, and from label_offset on their labels. A micro-step has the slot of the
 * parity of *micro_index + micro. The pointers lead to device memory. */
typedef struct tandem_image_slots {
    const uint8_t *slots;
    uint64_t slot_bytes, label_offset;
    const uint32_t *micro_index;
    uint32_t micro;
    int height, width, channels; /* of the data set */
    float mean, deviation;
    const tandem_pixel_blend *blend_of_row, *blend_of_column; /* of the model's images */
} tandem_image_slots;

#endif
