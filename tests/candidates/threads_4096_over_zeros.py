# expect: WRONG|CRASHED wrong,raised: 4,096 threads a block, unchecked: zeros
# gpu
from bases.threads_4096 import loss_over

smooth_l1_loss = loss_over("zeros")
